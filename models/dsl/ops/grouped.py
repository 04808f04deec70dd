"""Products with matrices of int8 in groups (models/dsl/grouped.py), by kernels of our own.

The compiler's own form of such a product is several times slower, and the more so the more rows
there are. The kernels are in models/dsl/kernels/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.dsl import grouped
from models.dsl.ops.record import (
    Array,
    Attrs,
    Kernel,
    NoGradient,
    Op,
    Reads,
    Sample,
    operands,
    require,
)
from models.dsl.ops.samples import normal
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from models.dsl.ops.record import Types

__all__ = ["linear_grouped"]

# A workgroup computes so many blocks of sixteen outputs at most, and there are so many at least.
_MOST_BLOCKS, _LEAST_WORKGROUPS = 64, 8
# Blocks that are unpacked at a time, so that evaluating a large matrix never holds it in f32.
_EVALUATED = 1024
# The smallest scale of a group of activations: 127 divided by it is finite.
_TINY = np.float32(2.0**-100)

NO_GRADIENT = NoGradient("its weights are rounded: train with f32 ones")


def product_type(x: TensorType, outputs: int, columns: int) -> TensorType:
    """The type of rows (M, K) times a matrix of so many rows and columns; refuses other rows."""
    require(
        x.dtype in (DType.F32, DType.F64) and x.rank == 2 and x.shape[1] == columns,
        "rows f32 (M, K) with the weight's K",
    )
    return x.with_shape(x.shape[0], outputs)


def scale_type(weight: TensorType) -> TensorType:
    """The type that the scale of a matrix with these integers has."""
    return TensorType((*weight.shape[:2], grouped.ROWS), DType.F16)


def rounded(x: Array, parts: int) -> Array:
    """x as the kernels read it: per group of columns, a scale and one or two parts of eight bits.

    Two parts are sixteen bits.
    """
    groups = x.reshape(x.shape[0], -1, grouped.GROUP)
    largest = np.maximum(np.abs(groups).max(axis=2, keepdims=True), _TINY)
    scaled = groups * (np.float32(127) / largest)
    integers = np.rint(scaled)
    if parts == 2:
        integers = integers + np.rint((scaled - integers) * np.float32(254)) * np.float32(1 / 254)
    return np.asarray(integers * (largest * np.float32(1 / 127))).reshape(x.shape)


def product(x: Array, weight: Callable[[slice], Array], blocks: int) -> Array:
    """x W^T, of which `weight` unpacks the rows in some blocks of sixteen."""
    steps = (slice(i, i + _EVALUATED) for i in range(0, blocks, _EVALUATED))
    return np.concatenate([x @ weight(step).T for step in steps], axis=1)


def product_kernel(function: str, x: TensorType, outputs: int) -> Kernel:
    """The kernel of that name, whose workgroups share the blocks of sixteen outputs."""
    rows, columns = x.shape
    blocks = outputs // grouped.ROWS
    own = min(_MOST_BLOCKS, -(-blocks // _LEAST_WORKGROUPS))
    return Kernel(
        function=function, sizes=(own, rows, outputs, columns), workgroups=-(-blocks // own)
    )


def sample_matrix(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array]:
    """A stored matrix of all integers that can be, and its scale."""
    integers = rng.integers(-127, 128, size=(rows, columns), dtype=np.int8)
    scales = rng.uniform(0.001, 0.01, size=(rows, columns // grouped.GROUP)).astype(np.float16)
    return grouped.pack(integers, scales)


def _infer_linear(types: Types, _: Attrs) -> TensorType:
    x, weight, scale = operands(types, 3)
    rows, columns = grouped.matrix_shape(weight.shape)
    require(
        weight.dtype is DType.I8 and scale == scale_type(weight),
        "a weight i8 (N / 16, K / 32, 8, 64) and a scale f16 (N / 16, K / 32, 16)",
    )
    return product_type(x, rows, columns)


def _evaluate_linear(arrays: tuple[Array, ...], _: Attrs) -> Array:
    x, weight, scale = arrays
    return product(
        rounded(x, 2), lambda some: grouped.unpack(weight[some], scale[some]), len(weight)
    )


linear_grouped: Op = Op(
    name="linear_grouped",
    doc="Rows (M, K), rounded to 16 bits a group of 32 columns, times a matrix (N, K) in groups.",
    infer=_infer_linear,
    evaluate=_evaluate_linear,
    lower=lambda types, result, _: product_kernel("linear_grouped", types[0], result.shape[1]),
    vjp=NO_GRADIENT,
    samples=lambda rng: [
        Sample((normal(rng, 1, 32), *sample_matrix(rng, 16, 32))),
        Sample((normal(rng, 11, 32), *sample_matrix(rng, 16, 32))),
    ],
    reads=Reads.IN_PLACE,
    is_stored=True,
)
