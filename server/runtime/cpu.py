"""Can this machine run a bundle? The answer comes in words, before the first illegal instruction.

A bundle names the CPU features that it was compiled for as LLVM does; Linux has its own names for
them in /proc/cpuinfo. Here stands the translation, and the only look at the machine.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from models.bundle import BundleError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from models.bundle import Target

CPUINFO = Path("/proc/cpuinfo")

# Linux's names for the features that compiled code may use, where they are LLVM's names too.
_X86_SAME = (
    "adx aes avx avx2 avx512bw avx512cd avx512dq avx512f avx512ifma avx512vbmi avx512vl bmi2 cmov "
    "cx16 cx8 f16c fma fma4 fxsr gfni mmx movbe popcnt sse sse2 sse4a ssse3 vaes vpclmulqdq xop "
    "xsave"
)
_AARCH64_SAME = "aes bf16 i8mm sha2 sha3 sm4 sme sve sve2"
# The others: Linux calls them otherwise, or has one word where LLVM has two.
_X86_OTHER: Mapping[str, tuple[str, ...]] = {
    "3dnowprefetch": ("prfchw",),
    "abm": ("lzcnt", "popcnt"),
    "amx_bf16": ("amx-bf16",),
    "amx_fp16": ("amx-fp16",),
    "amx_int8": ("amx-int8",),
    "amx_tile": ("amx-tile",),
    "avx512_bf16": ("avx512bf16",),
    "avx512_bitalg": ("avx512bitalg",),
    "avx512_fp16": ("avx512fp16",),
    "avx512_vbmi2": ("avx512vbmi2",),
    "avx512_vnni": ("avx512vnni",),
    "avx512_vp2intersect": ("avx512vp2intersect",),
    "avx512_vpopcntdq": ("avx512vpopcntdq",),
    "avx_ifma": ("avxifma",),
    "avx_vnni": ("avxvnni",),
    "avx_vnni_int8": ("avxvnniint8",),
    "bmi1": ("bmi",),
    "fpu": ("x87",),
    "lahf_lm": ("sahf",),
    "lm": ("64bit",),
    "pclmulqdq": ("pclmul",),
    "pni": ("sse3",),
    "sha_ni": ("sha",),
    "sse4_1": ("sse4.1",),
    "sse4_2": ("sse4.2", "crc32"),
}
_AARCH64_OTHER: Mapping[str, tuple[str, ...]] = {
    "asimd": ("neon", "fp-armv8"),
    "asimddp": ("dotprod",),
    "asimdfhm": ("fp16fml",),
    "asimdhp": ("fullfp16",),
    "asimdrdm": ("rdm",),
    "atomics": ("lse",),
    "crc32": ("crc",),
    "dcpop": ("ccpp",),
    "fcma": ("complxnum",),
    "jscvt": ("jsconv",),
    "lrcpc": ("rcpc",),
}
_TRANSLATIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "x86_64": {**{name: (name,) for name in _X86_SAME.split()}, **_X86_OTHER},
    "aarch64": {**{name: (name,) for name in _AARCH64_SAME.split()}, **_AARCH64_OTHER},
}
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # other systems' names for the same
# The target of `bake` that asks the least of each machine.
_LEAST: Mapping[str, str] = {"x86_64": "x86_64-v3", "aarch64": "aarch64-v8"}


class UnsupportedCpu(BundleError):
    """The bundle was compiled for another machine. The message says what to bake instead."""


def cpu_features() -> frozenset[str]:
    """This machine's CPU features, by LLVM's names."""
    return parse_features(CPUINFO.read_text(encoding="utf-8"), this_machine())


def this_machine() -> str:
    """`x86_64`, `aarch64`, or what the system calls something else."""
    name = platform.machine().lower()
    return _MACHINES.get(name, name)


def check_target(target: Target) -> None:
    """Raise UnsupportedCpu unless this machine runs code for the target."""
    check_features(target, this_machine(), cpu_features())


def parse_features(cpuinfo: str, machine: str) -> frozenset[str]:
    """The features that every core in a text of /proc/cpuinfo has, by LLVM's names.

    Only those that compiled code may use: what the kernel notes besides has no place in a bundle.
    """
    translation = _TRANSLATIONS.get(machine, {})
    cores = []
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            names = [translation.get(flag, ()) for flag in value.split()]
            cores.append(frozenset(name for names_ in names for name in names_))
    return frozenset.intersection(*cores) if cores else frozenset()


def check_features(target: Target, machine: str, features: frozenset[str]) -> None:
    """Raise UnsupportedCpu unless a machine with these features runs code for the target."""
    wanted = target.triple.partition("-")[0]
    least = _LEAST.get(machine, "host")
    if wanted != machine:
        raise UnsupportedCpu(
            f"the bundle was baked for {wanted} (target {target.name}) and this machine is "
            f"{machine}: bake it with `--target {least}`"
        )
    missing = [name for name in target.features if name not in features]
    if missing:
        raise UnsupportedCpu(
            f"the bundle was baked for target {target.name} and this {machine} CPU lacks "
            f"{', '.join(missing)}: bake it with `--target {least}`, or on this machine "
            "with `--target host`"
        )
