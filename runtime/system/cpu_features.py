"""Check that this machine can run a bundle, before an illegal instruction kills the process.

A bundle names the CPU features that it was compiled for as LLVM does; Linux has other names for
them. This module has the translation, and is the only one that reads the machine's features.

On x86 they are in /proc/cpuinfo. On ARM they are in two words that the kernel passes to every
process (getauxval(3)): those hold for all cores of a big.LITTLE system, and in QEMU's user
emulation they are the emulated CPU's, where /proc/cpuinfo is the host's.

macOS and Windows name few features. There, these are the features of the oldest CPU that has those
few: a Haswell if AVX2 is there, or an Apple M1.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.bundle import BundleError
from hearthd.runtime.system.operating_system import c_function, processor_feature, sysctl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hearthd.bundle import Manifest, ProgramFile, Target

CPUINFO = Path("/proc/cpuinfo")
# The keys of the two words, from Linux' include/uapi/linux/auxvec.h.
_AT_HWCAP, _AT_HWCAP2 = 16, 26
# Linux's names of ARM's features in the order of their bits (hwcap_str in
# arch/arm64/kernel/cpuinfo.c). New ones are added at the end.
_HWCAP = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg"
).split()
_HWCAP2 = (
    "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm "
    "svebf16 i8mm bf16 dgh rng bti mte ecv afp rpres mte3 sme"
).split()

# Features that compiled code may use and that have one name in Linux and LLVM.
_X86_SAME = (
    "adx aes avx avx2 avx512bw avx512cd avx512dq avx512f avx512ifma avx512vbmi avx512vl bmi2 cmov "
    "cx16 cx8 f16c fma fma4 fxsr gfni mmx movbe popcnt sse sse2 sse4a ssse3 vaes vpclmulqdq xop "
    "xsave"
)
_AARCH64_SAME = "aes bf16 i8mm sha2 sha3 sm4 sme sve sve2"
# Features with another name in LLVM, or with several: by Linux's name.
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
# A process may use the registers of AMX only if it has asked for them: a system call of x86-64
# Linux, its operation, and the number of the registers (Linux' Documentation/arch/x86/xstate.rst).
_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18
# The features of x86-64-v3, which every CPU with AVX2 of Intel and AMD has.
X86_64_V3 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
# Of Apple's M1, and the names for sysctl of what later ones have.
_APPLE_M1 = (
    "aes ccpp complxnum crc dotprod fp-armv8 fp16fml fullfp16 jsconv lse neon rcpc rdm sha2 sha3"
).split()
_APPLE_LATER = {"bf16": "hw.optional.arm.FEAT_BF16", "i8mm": "hw.optional.arm.FEAT_I8MM"}
_APPLE_AVX2 = "hw.optional.avx2_0"
_WINDOWS_AVX2 = 40  # PF_AVX2_INSTRUCTIONS_AVAILABLE of winnt.h
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # names of other systems
# Keys of /proc/cpuinfo whose values decide what a compiler makes of "this CPU": x86, then ARM.
_CPU_KEYS = frozenset(
    "vendor_id|cpu family|model|model name|stepping|flags|"
    "CPU implementer|CPU architecture|CPU variant|CPU part|CPU revision|Features".split("|")
)
# The targets of `bake` that run on every supported CPU, by machine.
_BASELINE_TARGETS: Mapping[str, str] = {"x86_64": "x86_64-v3", "aarch64": "aarch64-v8"}


class UnsupportedCpu(BundleError):
    """The bundle was compiled for another machine; the message says how to bake it for this one."""


def cpu_features() -> frozenset[str]:
    """The CPU features of this machine, with LLVM's names.

    On x86 this process may use the tile registers of AMX from then on. They are left out if the
    system refuses them.
    """
    machine = this_machine()
    if not knows_all_features():
        return _known_features(machine)
    if machine == "aarch64":
        return llvm_names(hwcap_flags(_getauxval(_AT_HWCAP), _getauxval(_AT_HWCAP2)), machine)
    flags = cpuinfo_flags(CPUINFO.read_text(encoding="utf-8"))
    if "amx_tile" in flags and not _request_tiles():
        flags = frozenset(flag for flag in flags if not flag.startswith("amx_"))
    return llvm_names(flags, machine)


def cpu_description() -> str:
    """The kinds of cores of this machine and all their flags, as Linux describes them.

    Two machines with one description get the same code from a compiler for "this CPU", which also
    schedules for its model. Empty on other systems, for which Hearth names the CPU.
    """
    return described_cores(CPUINFO.read_text(encoding="utf-8")) if knows_all_features() else ""


def described_cores(cpuinfo: str) -> str:
    """`cpu_description` for a text of /proc/cpuinfo, whose cores are separated by empty lines."""
    cores = set()
    for core in cpuinfo.split("\n\n"):
        lines = (line.partition(":") for line in core.splitlines())
        pairs = ((key.strip(), value.strip()) for key, _, value in lines)
        cores.add("\n".join(f"{key}: {value}" for key, value in pairs if key in _CPU_KEYS))
    return "\n\n".join(sorted(filter(None, cores)))


def knows_all_features() -> bool:
    """Whether `cpu_features` has all features of this machine, as on Linux."""
    return sys.platform == "linux"


def _known_features(machine: str) -> frozenset[str]:
    """What macOS or Windows says of the CPU; empty if it has no features that Hearth needs."""
    if machine == "x86_64" and (sysctl(_APPLE_AVX2) or processor_feature(_WINDOWS_AVX2)):
        return frozenset(X86_64_V3)
    if machine == "aarch64" and sys.platform == "darwin":
        return frozenset((*_APPLE_M1, *(name for name, key in _APPLE_LATER.items() if sysctl(key))))
    return frozenset()


def reserved_register() -> str | None:
    """LLVM's feature that keeps code from a register that this system changes at any time.

    macOS reserves x18 on Apple chips. Code for Linux on ARM uses it.
    """
    return "reserve-x18" if sys.platform == "darwin" and this_machine() == "aarch64" else None


def keeps_reserved_register(target: Target) -> bool:
    """Whether code for the target keeps from a register that this system reserves."""
    reserved = reserved_register()
    return reserved is None or reserved in target.cpu.split("+")


def _request_tiles() -> bool:
    """Ask the kernel for the tile registers of AMX, for this process; False if it refuses."""
    syscall = c_function("syscall")
    return bool(syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA) == 0)


def this_machine() -> str:
    """`x86_64`, `aarch64`, or the system's name of another architecture."""
    name = platform.machine().lower()
    return _MACHINES.get(name, name)


def best_program(manifest: Manifest) -> ProgramFile:
    """The fastest program of a bundle that this machine can run; raises UnsupportedCpu for none."""
    return fastest(manifest.programs, this_machine(), cpu_features())


def fastest(programs: Sequence[ProgramFile], machine: str, features: frozenset[str]) -> ProgramFile:
    """The last of the programs that a machine with these features can run.

    Raises UnsupportedCpu if it can run none.
    """
    for program in reversed(programs):
        if not _refusal(program.target, machine, features):
            return program
    for_machine = (program for program in programs if _machine(program.target) == machine)
    nearest = next(for_machine, programs[0])
    raise UnsupportedCpu(_refusal(nearest.target, machine, features))


def cpuinfo_flags(cpuinfo: str) -> frozenset[str]:
    """The flags that all cores in a text of /proc/cpuinfo have, with Linux's names."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    cores = [frozenset(value.split()) for key, _, value in lines if key.strip() == "flags"]
    return frozenset.intersection(*cores) if cores else frozenset()


def hwcap_flags(hwcap: int, hwcap2: int) -> frozenset[str]:
    """The flags in the words AT_HWCAP and AT_HWCAP2 of an ARM machine, with Linux's names."""
    words = ((_HWCAP, hwcap), (_HWCAP2, hwcap2))
    return frozenset(
        name for names, word in words for bit, name in enumerate(names) if word >> bit & 1
    )


def llvm_names(flags: Iterable[str], machine: str) -> frozenset[str]:
    """The features of these flags, with LLVM's names.

    Flags that compiled code does not use are left out.
    """
    translation = _TRANSLATIONS.get(machine, {})
    return frozenset(name for flag in flags for name in translation.get(flag, ()))


def _refusal(target: Target, machine: str, features: frozenset[str]) -> str:
    """Why a machine with these features cannot run code for the target; empty if it can."""
    baseline = _BASELINE_TARGETS.get(machine, "host")
    if _machine(target) != machine:
        return (
            f"the bundle was baked for {_machine(target)} (target {target.name}) and this machine "
            f"is {machine}; bake it with `--target {baseline}`"
        )
    missing = [name for name in target.features if name not in features]
    if missing:
        return (
            f"the bundle was baked for target {target.name} and this {machine} CPU lacks "
            f"{', '.join(missing)}; bake it with `--target {baseline}`, or on this machine "
            "with `--target host`"
        )
    if not keeps_reserved_register(target):
        return (
            f"the bundle was baked for target {target.name}, whose code may use a register that "
            "this system reserves; bake it on this machine with `--target host`"
        )
    return ""


def _machine(target: Target) -> str:
    return target.triple.partition("-")[0]


def _getauxval(key: int) -> int:
    """A word that the kernel passed to this process; 0 if there is none with that key."""
    function = c_function("getauxval")
    function.argtypes, function.restype = (ctypes.c_ulong,), ctypes.c_ulong
    return int(function(key))
