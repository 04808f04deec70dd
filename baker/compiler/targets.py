"""The targets of a bake, and the check that a program is for its target."""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle import Target
from hearthd.runtime.system.cpu_features import (
    X86_64_V3,
    cpu_features,
    keeps_reserved_register,
    knows_all_features,
    reserved_register,
    this_machine,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hearthd.bundle import Manifest, ProgramFile

_X86_V4 = (*X86_64_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_AMX = ("amx-tile", "amx-int8", "amx-bf16")

_CROSS_TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        Target(name="x86_64-v3", triple="x86_64-linux-gnu", cpu="x86-64-v3", features=X86_64_V3),
        Target(name="x86_64-v4", triple="x86_64-linux-gnu", cpu="x86-64-v4", features=_X86_V4),
        # N100, Core Ultra and other CPUs with integer dot products but no AVX-512.
        Target(
            name="x86_64-avxvnni",
            triple="x86_64-linux-gnu",
            cpu="x86-64-v3+avxvnni",
            features=(*X86_64_V3, "avxvnni"),
        ),
        # Cascade Lake, Ice Lake, Zen 4 and newer.
        Target(
            name="x86_64-avx512vnni",
            triple="x86_64-linux-gnu",
            cpu="x86-64-v4+avx512vnni",
            features=(*_X86_V4, "avx512vnni"),
        ),
        # Sapphire Rapids and newer.
        Target(
            name="x86_64-amx",
            triple="x86_64-linux-gnu",
            cpu="x86-64-v4+avx512vnni+avx512vbmi+avx512bf16+amx-tile+amx-int8+amx-bf16",
            features=(*_X86_V4, "avx512vnni", "avx512vbmi", "avx512bf16", *_AMX),
        ),
        # Raspberry Pi 5, and other cores with the dot products of ARMv8.2.
        Target(
            name="aarch64",
            triple="aarch64-linux-gnu",
            cpu="cortex-a76",
            features=("crc", "dotprod", "fullfp16", "lse", "neon", "rdm"),
        ),
        # Graviton 3, Cortex-A710, AmpereOne, Snapdragon X, and other cores with i8mm; SVE is not
        # used, since some do not have it.
        Target(
            name="aarch64-i8mm",
            triple="aarch64-linux-gnu",
            cpu="cortex-a76+i8mm",
            features=("crc", "dotprod", "fullfp16", "i8mm", "lse", "neon", "rdm"),
        ),
        # Raspberry Pi 3 and 4. Code that is ordered for the in-order core of the 3 is as fast on
        # the core of the 4, which reorders it.
        Target(
            name="aarch64-v8",
            triple="aarch64-linux-gnu",
            cpu="cortex-a53",
            features=("crc", "neon"),
        ),
    )
}
HOST = "host"  # also the name of the CPU, for both compilers
TARGET_NAMES = (HOST, *_CROSS_TARGETS)
_X86_64 = ("x86_64-v3", "x86_64-avxvnni", "x86_64-avx512vnni", "x86_64-amx")
# Targets of several programs in one bundle. Of those that a machine can run, the last is fastest.
TARGET_GROUPS: Mapping[str, tuple[str, ...]] = {
    "x86_64": _X86_64,
    "all": (*_X86_64, "aarch64-v8", "aarch64", "aarch64-i8mm"),
}

_ELF_MAGIC = b"\x7fELF"
# e_machine of the ELF header (System V ABI).
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183}


class TargetError(Exception):
    """A target is unknown, or a compiled program is for another target."""


@dataclass(frozen=True)
class Elf:
    """An executable in a vmfb; `machine` is the number in the ELF header."""

    machine: int


def find_targets(name: str) -> tuple[Target, ...]:
    """The targets of a group, or the one with this name; raises TargetError."""
    return tuple(find_target(member) for member in TARGET_GROUPS.get(name, (name,)))


def find_target(name: str) -> Target:
    """The target with this name; `host` is this machine with all its features.

    The code of a program is loaded by IREE, not by the system: on macOS and Windows, too, it is
    compiled for Linux. There `host` is the fastest of the other targets that this machine can run,
    without a register that the system reserves.
    """
    if name == HOST:
        return _host()
    if name not in _CROSS_TARGETS:
        known = ", ".join((*TARGET_NAMES, *TARGET_GROUPS))
        raise TargetError(f"unknown target {name!r}, expected one of {known}")
    return _CROSS_TARGETS[name]


def _host() -> Target:
    machine, features = this_machine(), cpu_features()
    if machine not in _ELF_MACHINES:
        raise TargetError(
            f"this machine is {machine}; supported machines are {', '.join(_ELF_MACHINES)}"
        )
    if knows_all_features():
        triple = f"{machine}-linux-gnu"
        return Target(name=HOST, triple=triple, cpu=HOST, features=tuple(sorted(features)))
    fitting = [target for target in find_targets("all") if _has_features(target)]
    if not fitting:
        raise TargetError(f"this {machine} CPU can run none of {', '.join(TARGET_GROUPS['all'])}")
    cpu = "+".join(filter(None, (fitting[-1].cpu, reserved_register())))
    return dataclasses.replace(fitting[-1], name=HOST, cpu=cpu)


def runs_here(target: Target) -> bool:
    """Whether this machine can run a program for the target."""
    return _has_features(target) and keeps_reserved_register(target)


def _has_features(target: Target) -> bool:
    return target.triple.startswith(this_machine()) and cpu_features() >= set(target.features)


def runnable(manifest: Manifest) -> tuple[ProgramFile, ...]:
    """The programs of a bundle that this machine can run."""
    return tuple(program for program in manifest.programs if runs_here(program.target))


def check_program(vmfb: bytes, target: Target) -> None:
    """Check that the native code in a vmfb is for the machine of the target; raises TargetError."""
    machines = {elf.machine for elf in embedded_elfs(vmfb)}
    expected = _ELF_MACHINES[target.triple.split("-")[0]]
    if machines != {expected}:
        raise TargetError(
            f"{target.name}: the program is for ELF machine {machines}, expected {expected}"
        )


def embedded_elfs(vmfb: bytes) -> Iterator[Elf]:
    """The 64-bit little-endian ELF executables in a vmfb, which are not compressed."""
    at = vmfb.find(_ELF_MAGIC)
    while at >= 0:
        if vmfb[at + 4 : at + 6] == b"\x02\x01":
            yield Elf(struct.unpack_from("<H", vmfb, at + 18)[0])
        at = vmfb.find(_ELF_MAGIC, at + 1)
