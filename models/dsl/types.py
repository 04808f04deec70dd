"""Dtypes and tensor types: all that a void tensor has. Knows NumPy's and MLIR's names for them."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from typing_extensions import override


class DslError(Exception):
    """A program in the DSL is wrong. The message names the op, the expected and the given input.

    DslError
     +- TypeRuleError    an op refuses its inputs' shapes or dtypes, or its attributes
     |   +- Unsupported  the kernel of a fused op does not take them; the op's function does
     +- VoidError        data was asked of a tensor that has none
     +- NoGradientError  a gradient was asked through an op that states it has none
    """


class TypeRuleError(DslError):
    """An op refuses the shapes or dtypes of its inputs, or its attributes."""


class Unsupported(TypeRuleError):
    """The kernel of a fused op does not take these inputs. A graph keeps its function instead."""


class VoidError(DslError):
    """Data was asked of a void tensor: while tracing there are shapes and dtypes only."""


class NoGradientError(DslError):
    """A gradient was asked through an op that is not differentiable."""


class DType(enum.Enum):
    """An element type: its NumPy dtype and its name in MLIR."""

    BOOL = ("bool", np.dtype(np.bool_), "i1")
    I8 = ("i8", np.dtype(np.int8), "i8")
    I32 = ("i32", np.dtype(np.int32), "i32")
    I64 = ("i64", np.dtype(np.int64), "i64")
    F16 = ("f16", np.dtype(np.float16), "f16")
    BF16 = ("bf16", np.dtype(ml_dtypes.bfloat16), "bf16")
    F32 = ("f32", np.dtype(np.float32), "f32")
    F64 = ("f64", np.dtype(np.float64), "f64")

    def __init__(self, label: str, numpy: np.dtype[Any], mlir: str) -> None:
        self.label = label
        self.numpy = numpy
        self.mlir = mlir

    @override
    def __repr__(self) -> str:
        return self.label

    __str__ = __repr__

    @property
    def is_float(self) -> bool:
        """Whether values of this dtype have a gradient."""
        return self in (DType.F16, DType.BF16, DType.F32, DType.F64)

    @property
    def lowest(self) -> float:
        """The least finite value of a float dtype."""
        # NumPy's finfo does not know bf16.
        return float(ml_dtypes.finfo(self.numpy).min)  # type: ignore[no-untyped-call]

    @staticmethod
    def of(dtype: np.dtype[Any]) -> DType:
        """The DType of a NumPy dtype; raises TypeRuleError for one that the DSL does not have."""
        for known in DType:
            if known.numpy == dtype:
                return known
        raise TypeRuleError(f"the DSL has no dtype for NumPy's {dtype}")

    @staticmethod
    def named(label: str) -> DType:
        """The DType called "f32", "i8", ...; raises TypeRuleError for another name."""
        for known in DType:
            if known.label == label:
                return known
        labels = ", ".join(known.label for known in DType)
        raise TypeRuleError(f"unknown dtype {label!r}, expected one of {labels}")


FLOATS = frozenset(dtype for dtype in DType if dtype.is_float)
# Sums of these are kept in f32.
NARROW = frozenset({DType.F16, DType.BF16})
NUMBERS = frozenset(DType) - {DType.BOOL}
# f64 is for NumPy alone (finite differences): of a program's f64 the compiler makes f32, silently,
# and has no f64 tanh, sine or cosine when it is told not to.
COMPILED = frozenset(DType) - {DType.F64}


@dataclass(frozen=True)
class TensorType:
    """A shape and a dtype."""

    shape: tuple[int, ...]
    dtype: DType

    def __post_init__(self) -> None:
        if any(type(extent) is not int or extent < 1 for extent in self.shape):
            raise TypeRuleError(f"extents must be positive integers, got {self.shape}")

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of a dense array of this type."""
        return self.size * self.dtype.numpy.itemsize

    @property
    def mlir(self) -> str:
        """The type in MLIR's syntax, e.g. `tensor<2x3xf32>`."""
        return f"tensor<{''.join(f'{extent}x' for extent in self.shape)}{self.dtype.mlir}>"

    def with_shape(self, *shape: int) -> TensorType:
        """The same dtype in another shape."""
        return TensorType(shape, self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape in another dtype."""
        return TensorType(self.shape, dtype)

    @override
    def __str__(self) -> str:
        return f"{self.dtype.label}{list(self.shape)}"
