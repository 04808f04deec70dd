"""Compile the C kernels of models/dsl/kernels to objects that are linked into a program.

The Python package ziglang contains clang for every target, so that a bundle for another machine
needs no toolchain.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from hearthd.baker.compiler.child_process import child_process
from hearthd.baker.temporary_folder import temporary_folder
from hearthd.bundle import KernelBuild
from hearthd.models.dsl.kernel_sources import KERNELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hearthd.bundle import Target

PACKAGE = "ziglang"
# Code without calls to libc or guards, and with fused operations only where the source has them, so
# that every target rounds alike.
FLAGS = (
    "-O3",
    "-std=c17",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-g0",
    "-ffreestanding",
    "-fno-builtin",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-sanitize=all",
)

NO_CHAINS: Mapping[str, str] = MappingProxyType({})

# The text that dot.h writes into an object.
_DOT_NAME = re.compile(rb"hearth dot: ([a-z0-9]+)\0")


class KernelError(Exception):
    """A kernel does not compile, a bug of Hearth; the message is that of clang."""


def build(
    names: Iterable[str], target: Target, folder: Path, chains: Mapping[str, str] = NO_CHAINS
) -> KernelBuild:
    """Write NAME.o for each kernel and each chain into a folder; returns the record.

    `chains` are the texts of the C files of chains, by their names. Raises KernelError.
    """
    names = tuple(names)
    machine = target.triple.partition("-")[0]
    # `python -m ziglang` takes the time of a Python process.
    command = [_zig(), "cc", "-target", f"{machine}-linux-gnu"]
    with as_file(files("hearthd.models.dsl") / "kernels") as sources:
        sources_of: dict[str, tuple[Path, Mapping[str, str]]] = {}
        for name in names:
            kernel = KERNELS[name]
            sources_of[name] = (sources / kernel.file, kernel.macros)
        for name, text in chains.items():
            # A relative path: an object has the path of its source.
            sources_of[name] = (Path(f"{name}.c"), {})
            (folder / f"{name}.c").write_text(text, encoding="utf-8", newline="\n")
        for name, (source, defined) in sources_of.items():
            defines = [f"-D{macro}={value}" for macro, value in defined.items()]
            options = [f"-mcpu={_cpu(target)}", *FLAGS, f"-I{sources}", *defines]
            arguments = [*options, "-c", str(source)]
            order = [*command, *arguments, "-o", f"{name}.o"]
            with child_process(order, cwd=folder, stderr=subprocess.PIPE) as clang:
                diagnostics = clang.communicate()[1].decode(errors="replace")
            if clang.returncode:
                raise KernelError(f"{name} does not compile: {_first_error(diagnostics)}")
    objects = (folder / f"{name}.o" for name in names)
    return KernelBuild(
        names=names, instructions=instructions(file.read_bytes() for file in objects)
    )


def _zig() -> str:
    """The path of zig, or of zig.exe; raises ModuleNotFoundError."""
    path = str(files(PACKAGE) / "zig")
    return shutil.which(path) or path


def _cpu(target: Target) -> str:
    """The target's CPU as clang names it."""
    if target.cpu != "host":
        return target.cpu.replace("-", "_")
    # A CPU may have tiles that the system refuses to this process.
    refused = target.triple.startswith("x86_64") and "amx-tile" not in target.features
    return "native-amx_tile-amx_int8" if refused else "native"


def _first_error(diagnostics: str) -> str:
    """The first line with an error, else the last line."""
    lines = diagnostics.strip().splitlines()
    return next((line for line in lines if "error:" in line), " ".join(lines[-1:]))


def instructions_for(target: Target) -> str | None:
    """The instruction set of integer products on a target; raises KernelError."""
    with temporary_folder("kernels.") as folder:
        return build(["linear_int8_g32"], target, folder).instructions


def instructions(objects: Iterable[bytes]) -> str | None:
    """The instruction set for which dot.h was compiled, read from the objects.

    None if no object uses dot.h; raises KernelError if they differ.
    """
    names = {name.decode() for data in objects for name in _DOT_NAME.findall(data)}
    if len(names) > 1:
        raise KernelError(f"kernels of one program have different instructions: {sorted(names)}")
    return next(iter(names), None)
