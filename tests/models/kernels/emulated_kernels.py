"""Hearth's C kernels for ARM, in a program that QEMU runs."""

from __future__ import annotations

import shutil
import struct
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.compiler.kernel_objects import instructions
from hearthd.baker.compiler.targets import find_target
from tests.models.kernels.kernel_library import Kernels, NotBuilt, build_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
# The branches of dot_arm.h: the target that has them, and the CPU that QEMU emulates for it.
EMULATED = {
    "neon": ("aarch64-v8", "cortex-a72"),
    "dotprod": ("aarch64", "cortex-a76"),
    "i8mm": ("aarch64-i8mm", "max"),
}

_PROGRAM = Path(__file__).with_name("emulated.c")


def build_program(name: str, folder: Path, names: Sequence[str]) -> Path:
    """A program of kernels for an instruction set, which needs nothing else to be linked."""
    program = folder / name
    kernels = "".join(f"KERNEL(hearth_{kernel}) " for kernel in names)
    cpu = find_target(EMULATED[name][0]).cpu.replace("-", "_")
    flags = ("-static", "-Wl,--no-gc-sections", f"-DKERNELS={kernels}")
    build_library("aarch64", cpu, program, names, *flags, str(_PROGRAM))
    return program


class EmulatedKernels(Kernels):
    """Kernels under an instruction set of ARM, as `emulated.c` calls them."""

    def __init__(
        self, program: Path, names: Sequence[str], process: subprocess.Popen[bytes]
    ) -> None:
        self.instructions = instructions([program.read_bytes()])
        self.names = names
        self._process = process

    @override
    def _call(self, kernel: Any, arrays: tuple[Array, ...]) -> None:
        if kernel.function not in self.names:
            raise NotBuilt(kernel.function)
        counts = (len(arrays), len(kernel.sizes), len(kernel.scalars), kernel.workgroups)
        parts = [struct.pack("<5Q", self.names.index(kernel.function), *counts)]
        for array in arrays:
            parts += [struct.pack("<Q", array.nbytes), array.tobytes()]
        parts.append(struct.pack(f"<{len(kernel.sizes)}Q", *kernel.sizes))
        parts.append(struct.pack(f"<{len(kernel.scalars)}f", *kernel.scalars))
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"".join(parts))
        stdin.flush()
        result = arrays[-1]
        answer = stdout.read(8 + result.nbytes)
        assert len(answer) == 8 + result.nbytes, f"{kernel.function} ended the program"
        assert answer[:8] == bytes(8), f"{kernel.function} failed"
        result.reshape(-1).view(np.uint8)[:] = np.frombuffer(answer, np.uint8, offset=8)


@contextmanager
def emulated(program: Path, names: Sequence[str], cpu: str) -> Iterator[EmulatedKernels]:
    """The kernels of a program on a CPU that QEMU emulates."""
    assert QEMU is not None
    command = (QEMU, "-cpu", cpu, str(program))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield EmulatedKernels(program, names, process)
        finally:
            process.kill()
