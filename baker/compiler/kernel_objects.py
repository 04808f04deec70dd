"""Compile the C kernels of models/dsl/kernels to objects that are linked into a program.

The Python package ziglang contains clang for every target, so that a bundle for another machine
needs no toolchain.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from hearthd.baker.compiler.child_process import child_process, killed_by
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
# Kernels read experts from their file: models/dsl/kernels/product/expert_cache.h.
STREAMED_FLAG = "-DSTREAMED=1"

NO_CHAINS: Mapping[str, str] = MappingProxyType({})

# What many kernels include, in the folder of Hearth's C files, and what clang makes of it.
_INTRINSICS, _PRECOMPILED = "isa/intrinsics.h", "intrinsics.pch"

# The text that dot.h writes into an object.
_DOT_NAME = re.compile(rb"hearth dot: ([a-z0-9]+)\0")


class KernelError(Exception):
    """A kernel does not compile, a bug of Hearth; the message is clang's."""


def build(
    names: Iterable[str],
    target: Target,
    folder: Path,
    chains: Mapping[str, str] = NO_CHAINS,
    cancelled: threading.Event | None = None,
    *,
    streamed: bool = False,
) -> KernelBuild:
    """Write NAME.o for each kernel and each chain into a folder; returns the record.

    `chains` are the texts of the C files of chains, by their names. Once `cancelled` is set, no
    other object is begun. `streamed` says whether the matrices of experts are read ahead from their
    file. Raises KernelError, also if it was cancelled.
    """
    names = tuple(names)
    with as_file(files("hearthd.models.dsl") / "kernels") as sources:
        flags = (*FLAGS, STREAMED_FLAG) if streamed else FLAGS
        clang = _Clang(target, folder, sources, cancelled or threading.Event(), flags)
        with ThreadPoolExecutor(os.cpu_count(), "clang") as pool:
            chain_objects = pool.map(clang.compile_chain, chains, chains.values())
            if names:
                clang.precompile()
            objects = pool.map(clang.compile_kernel, names)
            contents = [path.read_bytes() for path in objects]
            for _ in chain_objects:
                pass
    return KernelBuild(names=names, instructions=instructions(contents))


@dataclass(frozen=True)
class _Clang:
    """Compiles C files for a target into a folder; `sources` is the folder of Hearth's C files."""

    target: Target
    folder: Path
    sources: Path
    cancelled: threading.Event
    flags: tuple[str, ...]

    def precompile(self) -> None:
        """Read the header of instructions once for all kernels; raises KernelError."""
        header = self.sources / _INTRINSICS
        self._run(_INTRINSICS, "-x", "c-header", str(header), "-o", _PRECOMPILED)

    def compile_kernel(self, name: str) -> Path:
        """The object of a kernel, after `precompile`; raises KernelError."""
        kernel = KERNELS[name]
        defines = [f"-D{macro}={value}" for macro, value in kernel.macros.items()]
        source = self.sources / kernel.file
        return self._compile(name, source, "-include-pch", _PRECOMPILED, *defines)

    def compile_chain(self, name: str, text: str) -> Path:
        """The object of a chain with this text; raises KernelError."""
        # A relative path: an object has the path of its source.
        source = Path(f"{name}.c")
        (self.folder / source).write_text(text, encoding="utf-8", newline="\n")
        return self._compile(name, source)

    def _compile(self, name: str, source: Path, *arguments: str) -> Path:
        self._run(name, f"-I{self.sources}", *arguments, "-c", str(source), "-o", f"{name}.o")
        return self.folder / f"{name}.o"

    def _run(self, name: str, *arguments: str) -> None:
        """Run clang in the folder; raises KernelError."""
        if self.cancelled.is_set():
            raise KernelError(f"{name} was not compiled: the bake ends")
        machine = self.target.triple.partition("-")[0]
        # `python -m ziglang` takes the time of a Python process.
        command = [_zig(), "cc", "-target", f"{machine}-linux-gnu", f"-mcpu={_cpu(self.target)}"]
        with child_process(
            [*command, *self.flags, *arguments], cwd=self.folder, stderr=subprocess.PIPE
        ) as process:
            diagnostics = process.communicate()[1].decode(errors="replace")
        if process.returncode:
            reason = killed_by(process) or _first_error(diagnostics)
            raise KernelError(f"{name} does not compile: {reason}")


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
