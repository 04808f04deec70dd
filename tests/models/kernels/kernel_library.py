"""Hearth's C kernels as shared libraries that a test calls directly."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typing_extensions import override

from hearthd.baker.atomic_file import write_atomically
from hearthd.baker.compiler.kernel_objects import FLAGS, PACKAGE, instructions
from hearthd.baker.compiler.targets import find_target
from hearthd.models import dsl
from hearthd.models.dsl.kernel_sources import KERNELS
from hearthd.models.dsl.matrix_format import (
    INT4_MIN,
    INT6_SUPER,
    INT8,
    INT12,
    IQ2_XS,
    MXFP4,
    STORED,
)
from hearthd.models.dsl.ops import REGISTRY
from hearthd.models.dsl.types import DType, TensorType
from hearthd.runtime.system.cpu_features import cpu_features

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hearthd.models.dsl.matrix_format import MatrixFormat

    Array = NDArray[Any]

SOURCES = Path(dsl.__file__).parent / "kernels"
_WRITTEN = Path(__file__).parents[3] / "build" / "test-kernels"
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
# By day the first one that this machine has is tested. AVX2, which every x86-64 target has, is
# compared with it: its bits are the same. At night all are tested, some of them in C if need be.
HERE = [name for name, (_, features) in INSTRUCTION_SETS.items() if features <= cpu_features()]
_IN_C = {"amx-tile", "amx-int8", "amx-bf16", "avxvnni"}
IN_C = [
    name
    for name, (_, features) in INSTRUCTION_SETS.items()
    if name not in HERE and features <= cpu_features() | _IN_C
]
_EMULATED = ("-include", str(Path(__file__).with_name("emulated_instructions.h")))
NIGHT_SETS = tuple(name for name in INSTRUCTION_SETS if name not in HERE[:1])
COMPARED_BY_DAY = "avx2"

# What the kernels begin with that tests compare with it. One that is missing is NotBuilt.
_COMPARED = (
    *("attention_", "embedding_", "linear_", "write_", "norm_rope", "residual_norm"),
    *("channel_delta_rule", "gated_delta_rule", "selective_scan", "ssm_scan"),
)
_NOT_COMPARED = re.compile(
    "_sinks$|_rounded(_a8)?$|_coarse_and_fine_|^linear_f32$|^write_f16_rows$"
)

# Linked into a program there is nothing else: no libc, not even memset.
SHARED = ("-shared",)
_ALONE = ("-nostdlib", "-Wl,-z,defs")
_MACROS = sorted({macro for kernel in KERNELS.values() for macro in kernel.macros})


# The formats that are compiled in every run: a plane of 8 bits, one of 4 with minimums, two planes,
# pairs of int16, a grid of eight values, and a table of values. The others share their code, and
# run at night.
DAY_FORMATS = (INT8, INT4_MIN, INT6_SUPER, INT12, IQ2_XS, MXFP4)
ALL_FORMATS = [
    pytest.param(form, id=form.name, marks=() if form in DAY_FORMATS else pytest.mark.nightly)
    for form in STORED
]
# Those whose products with experts and with adapters are, too: these unpack as plain products do.
FEW_FORMATS = DAY_FORMATS[:2]
# All formats, for a test of such products; the others run at night.
FEW_AT_DAY = [
    pytest.param(one, marks=() if one in FEW_FORMATS else pytest.mark.nightly) for one in STORED
]


def kernel_names(*, whole: bool) -> list[str]:
    """The names of all kernels, or without those that DAY_FORMATS and FEW_FORMATS stand for."""
    return [name for name in KERNELS if whole or name not in _left_out(DAY_FORMATS, FEW_FORMATS)]


def compared_names() -> list[str]:
    """The names of the kernels whose bits are compared in every run."""
    left_out = _left_out(FEW_FORMATS, ())
    return [
        name
        for name in KERNELS
        if name.startswith(_COMPARED) and name not in left_out and not _NOT_COMPARED.search(name)
    ]


def _left_out(formats: Sequence[MatrixFormat], few: Sequence[MatrixFormat]) -> set[str]:
    """Kernels of products with other formats; of experts and adapters, with those not in `few`."""
    return {
        f"{pattern.format(form.symbol)}{suffix}"
        for patterns, kept in (
            (("linear_{}", "linear_{}_rounded", "round_rows_{}", "embedding_{}"), formats),
            (("routed_linear_{}", "linear_{}_adapted"), few),
        )
        for form in STORED
        if form not in kept
        for pattern in patterns
        for suffix in ("", "_a8")
    }


def source_text(name: str) -> str:
    """A C file that compiles a kernel, also behind others."""
    kernel = KERNELS[name]
    undefined = "".join(f"#undef {macro}\n" for macro in _MACROS)
    macros = "".join(f"#define {macro} {value}\n" for macro, value in kernel.macros.items())
    return f'{undefined}{macros}#include "{kernel.file}"\n'


def write_sources(names: Sequence[str]) -> list[Path]:
    """The sources of a library of kernels.

    Variants of a file that round activations alike are compiled together: reading the headers of
    the intrinsics takes longer than compiling one of them. The same text has the same path each
    time, so that zig takes unchanged objects from its cache.
    """
    sources = defaultdict[tuple[str, ...], list[str]](list)
    for name in names:
        macros = KERNELS[name].macros
        rounding = macros.get("ACTIVATION_BITS", "16"), macros.get("ROUNDED", "0")
        sources[("integers", *rounding) if "PLANES" in macros else (name,)].append(name)
    texts = {}
    for key, together in sources.items():
        text = "".join(map(source_text, together))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        texts[f"{'_'.join(key)}.{digest}.c"] = text
    missing = {name: text for name, text in texts.items() if not (_WRITTEN / name).exists()}
    write_atomically(_WRITTEN, missing)
    return [_WRITTEN / name for name in texts]


def build_library(machine: str, cpu: str, library: Path, names: Sequence[str], *more: str) -> None:
    """Compile and link kernels by the baker's flags, with nothing else.

    `more` are flags and files that come first, as those that make a program of them instead of a
    shared library.
    """
    flags = [flag for flag in FLAGS if flag != "-fvisibility=hidden"]
    target = ["-target", f"{machine}-linux-gnu", f"-mcpu={cpu}"]
    flags += [*(more or SHARED), *_ALONE, f"-I{SOURCES}"]
    command = [sys.executable, "-m", PACKAGE, "cc", *target, *flags]
    sources = write_sources(names)
    subprocess.run([*command, "-o", str(library), *map(str, sources)], check=True)


class NotBuilt(Exception):
    """The library or program does not have this kernel: see `kernel_names`."""


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
        """Call a lowered kernel, after the kernel that makes its scratch."""
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

    def __init__(self, cpu: str, folder: Path, names: Sequence[str], *flags: str) -> None:
        library = folder / f"{next(_number)}.so"
        build_library("x86_64", cpu, library, names, *SHARED, *flags)
        self.instructions = instructions([library.read_bytes()])
        self.names = names
        self._library = ctypes.CDLL(str(library))

    @override
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
        """The C function of a kernel; raises NotBuilt."""
        if name not in self.names:
            raise NotBuilt(name)
        return getattr(self._library, f"hearth_{name}")


class BuiltKernels(Mapping[str, LoadedKernels]):
    """The kernels by instruction set; each is compiled when it is first asked for."""

    def __init__(self, folder: Path, names: Mapping[str, Sequence[str]]) -> None:
        self._folder, self._names = folder, names
        self._loaded: dict[str, LoadedKernels] = {}

    @override
    def __getitem__(self, name: str) -> LoadedKernels:
        if name not in self._loaded:
            cpu, _ = INSTRUCTION_SETS[name]
            flags = _EMULATED if name in IN_C else ()
            if name in IN_C and "+avxvnni" in cpu:  # or the compiler itself uses the instructions
                cpu, flags = cpu.replace("+avxvnni", ""), (*flags, "-D__AVXVNNI__")
            self._loaded[name] = LoadedKernels(cpu, self._folder, self._names[name], *flags)
        return self._loaded[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    @override
    def __len__(self) -> int:
        return len(self._names)


_number = count()
