"""Hearth's C kernels as shared libraries that a test calls directly."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.baker.compiler.kernel_objects import FLAGS, PACKAGE, instructions
from hearthd.baker.compiler.targets import find_target
from hearthd.models import dsl
from hearthd.models.dsl.activations import kernel_name, kernel_source
from hearthd.models.dsl.ops import REGISTRY
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

SOURCES = Path(dsl.__file__).parent / "kernels"
# The targets of the branches of dot.h.
TARGETS = {
    "amx": "x86_64-amx",
    "avx512vnni": "x86_64-avx512vnni",
    "avxvnni": "x86_64-avxvnni",
    "avx2": "x86_64-v3",
}
# The branches by the CPU that clang compiles them for, and what that CPU must have.
INSTRUCTION_SETS = {
    name: (target.cpu.replace("-", "_"), set(target.features))
    for name, target in ((name, find_target(target)) for name, target in TARGETS.items())
} | {"portable": ("x86_64_v3-avx2", {"f16c", "fma"})}

# Linked into a program there is nothing else: no libc, not even memset.
_SHARED = ("-shared",)
_ALONE = ("-nostdlib", "-Wl,-z,defs")
# Kernels of integers are compiled as one file: reading the header of the intrinsics takes longer
# than compiling one of them. These macros say which kernel a file makes of a shared body.
_INTEGERS = re.compile(r"(linear|embedding)_(?!routed_(bf16|f32))|lora_up_i8")
_MACROS = ("NAME", "BITS", "HALVES", "MINIMUM", "ROUTED", "ADAPTED")
# Kernels that are also compiled for activations of 8 bits.
_ROUNDING = re.compile(r"linear_(routed_)?(grouped|int\d)")


def kernel_names() -> list[str]:
    """The names of all kernels."""
    names = sorted(path.stem for path in SOURCES.glob("*.c"))
    return [*names, *(kernel_name(name, 8) for name in names if _ROUNDING.match(name))]


def write_sources(library: Path, names: Sequence[str]) -> list[Path]:
    """The sources of a library of kernels: files of SOURCES, and new ones beside it."""
    undefined = "".join(f"#undef {macro}\n" for macro in _MACROS)
    alone, together = list[Path](), defaultdict[str | None, list[str]](list)
    for name in names:
        source, macros = kernel_source(name)
        file, bits = SOURCES / f"{source}.c", macros.pop("ACTIVATION_BITS", None)
        if _INTEGERS.match(name):
            renamed = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
            together[bits].append(f'{undefined}{renamed}#include "{file}"\n')
        else:
            alone.append(file)
    for bits, includes in together.items():
        alone.append(library.with_suffix(f".{bits}.c"))
        defined = f"#define ACTIVATION_BITS {bits}\n" if bits else ""
        alone[-1].write_text(defined + "".join(includes))
    return alone


def build_library(
    machine: str, cpu: str, library: Path, *more: str, names: Sequence[str] | None = None
) -> None:
    """Compile and link kernels, all by default, by the baker's flags, with nothing else.

    `more` are flags and files that make a program of them instead of a shared library.
    """
    flags = [flag for flag in FLAGS if flag != "-fvisibility=hidden"]
    target = ["-target", f"{machine}-linux-gnu", f"-mcpu={cpu}"]
    command = [sys.executable, "-m", PACKAGE, "cc", *target, *flags, *(more or _SHARED), *_ALONE]
    sources = write_sources(library, kernel_names() if names is None else names)
    subprocess.run([*command, "-o", str(library), *map(str, sources)], check=True)


class Kernels(ABC):
    """All kernels under an instruction set."""

    instructions: str | None
    """The instruction set for which dot.h was compiled."""

    def __call__(self, name: str, inputs: tuple[Array, ...], result: Array, **attrs: Any) -> Array:
        """Call a kernel as its op is lowered, workgroup after workgroup; the last one first."""
        types = tuple(TensorType(x.shape, DType.of(x.dtype)) for x in inputs)
        kernel: Any = REGISTRY[name].lower(
            types, TensorType(result.shape, DType.of(result.dtype)), attrs
        )
        return self.computed(kernel, inputs, result)

    def computed(self, kernel: Any, inputs: tuple[Array, ...], result: Array) -> Array:
        """Call a lowered kernel, behind that of its scratch."""
        if kernel.in_place:
            result[:], inputs = inputs[0], inputs[1:]
        if kernel.scratch is not None:
            scratch = np.full(kernel.scratch.size, np.nan, np.float32)
            self._call(kernel.scratch.kernel, (*inputs, scratch))
            inputs = (*inputs, scratch)
        arrays = (*inputs, result)
        assert all(array.flags.c_contiguous for array in arrays)
        self._call(kernel, arrays)
        return result

    @abstractmethod
    def _call(self, kernel: Any, arrays: tuple[Array, ...]) -> None:
        """Call a lowered kernel; the last one of the arrays is the result."""


class LoadedKernels(Kernels):
    """The kernels as a shared library of this machine."""

    def __init__(self, cpu: str, folder: Path) -> None:
        library = folder / f"{next(_number)}.so"
        build_library("x86_64", cpu, library)
        self.instructions = instructions([library.read_bytes()])
        self._library = ctypes.CDLL(str(library))

    def _call(self, kernel: Any, arrays: tuple[Array, ...]) -> None:
        tensors: list[Any] = []
        for array in arrays:
            tensors += [array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(0)]
        sizes = [ctypes.c_size_t(size) for size in kernel.sizes]
        scalars = [ctypes.c_float(scalar) for scalar in kernel.scalars]
        function = self.function(kernel.function)
        for workgroup in reversed(range(kernel.workgroups)):
            assert function(*tensors, ctypes.c_size_t(workgroup), *sizes, *scalars) == 0

    def function(self, name: str) -> Any:
        """The C function of a kernel."""
        return getattr(self._library, f"hearth_{name}")


_number = count()
