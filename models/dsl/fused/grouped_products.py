"""Products with matrices of int8 in groups (models/dsl/packing.py).

The compiler's own form of such a product is several times slower, and the more so the more rows
there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.dsl import functions as f
from models.dsl import ops, packing
from models.dsl.composite import Fused, composite
from models.dsl.ops.record import Kernel, Sample, require
from models.dsl.ops.samples import normal
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from models.dsl.graph import Tensor
    from models.dsl.ops.record import Array, Attrs, Types

__all__ = ["linear_grouped"]

# Blocks of sixteen outputs and rows that one workgroup computes, and workgroups of a product.
_MAX_BLOCKS, _MAX_ROWS, MIN_WORKGROUPS = 64, 32, 8
# The steps of a second int8 that are one of the first: both have sixteen bits.
STEPS = 254
# The smallest largest magnitude of a group of activations: 127 divided by it is finite.
_TINY = 2.0**-100


def require_rows(x: TensorType) -> None:
    """Raise TypeRuleError for activations that the kernels of products do not take."""
    require(x.dtype in (DType.F32, DType.F64) and x.rank == 2, "rows f32 (M, K)")


def require_matrix(integers: tuple[TensorType, ...], scale: TensorType, quads: int) -> None:
    """Raise TypeRuleError unless integers and scale are those of a matrix in groups."""
    blocks, groups = scale.shape[0], scale.shape[1]
    shape = (blocks, groups, quads, packing.LANES)
    require(
        all(part == TensorType(shape, DType.I8) for part in integers)
        and scale == TensorType((blocks, groups, packing.ROWS), DType.F16),
        f"integers i8 (N / 16, K / 32, {quads}, 64) and a scale f16 (N / 16, K / 32, 16)",
    )


def rounded(x: Tensor, steps: int, *, group: int = packing.GROUP) -> Tensor:
    """x (M, K) as the kernels read it: f32 values that a scale per `group` columns and int8 hold.

    A second int8 holds what the first one leaves, in `steps` of one, unless they are 1: 254 are
    sixteen bits.
    """
    groups = ops.reshape(x, shape=(x.shape[0], x.shape[1] // group, group))
    largest = ops.reduce_max(ops.absolute(groups), axes=(2,))
    largest = ops.maximum(largest, ops.full_like(largest, _TINY))
    scaled = groups * f.along_axes(127.0 / largest, groups, (2,))
    integers = ops.round_(scaled)
    if steps > 1:
        integers = integers + ops.round_((scaled - integers) * float(steps)) * (1 / steps)
    values = integers * f.along_axes(largest * (1 / 127), groups, (2,))
    return ops.reshape(values, shape=x.shape)


def by_rows(integers: Tensor, dtype: DType) -> Tensor:
    """Stored integers (N / 16, K / 32, 8, 64) by block and row: (N / 16, 16, K)."""
    blocks, groups = integers.shape[:2]
    quads = ops.reshape(integers, shape=(blocks, groups, packing.QUADS, packing.ROWS, packing.QUAD))
    ordered = ops.transpose(quads, order=(0, 3, 1, 2, 4))
    rows = ops.reshape(ordered, shape=(blocks, packing.ROWS, groups * packing.GROUP))
    return ops.convert(rows, dtype=dtype)


def scaled(values: Tensor, scale: Tensor, minimum: Tensor | None = None) -> Tensor:
    """Values (N / 16, 16, K) times stored scales, plus stored minimums: (N, K)."""
    blocks, rows, columns = values.shape

    def groups(x: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        count = factors.shape[1]
        grouped = ops.reshape(x, shape=(blocks, rows, count, columns // count))
        ordered = ops.transpose(ops.convert(factors, dtype=x.dtype), order=(0, 2, 1))
        return grouped, f.along_axes(ordered, grouped, (3,))

    result = ops.multiply(*groups(values, scale))
    if minimum is not None:
        result = ops.add(*groups(result, minimum))
    return ops.reshape(result, shape=(blocks * rows, columns))


def dequantized(weight: Tensor, scale: Tensor, dtype: DType) -> Tensor:
    """The real weights (N, K) of a matrix in groups."""
    return scaled(by_rows(weight, dtype), scale)


def times_transposed(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T for x (M, K) and W (N, K)."""
    return ops.dot_general(x, weight, batch=((), ()), contract=((1,), (1,)), dtype=x.dtype)


@composite(blocks=True)
def grouped_product(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """x W^T for x (M, K) and a matrix W (N, K) in groups."""
    return times_transposed(x, dequantized(weight, scale, x.dtype))


def product_kernel(
    function: str, x: TensorType, outputs: int, workgroups: int = MIN_WORKGROUPS
) -> Kernel:
    """A kernel whose workgroups share the rows and the blocks of sixteen outputs.

    Each workgroup rounds its rows, so rows are divided first, and then blocks, until there are
    `workgroups` of them or one for each block.
    """
    rows, columns = x.shape
    blocks = outputs // packing.ROWS
    parts = -(-rows // _MAX_ROWS)
    share = min(_MAX_BLOCKS, -(-blocks // -(-workgroups // parts)))
    return Kernel(
        function=function,
        sizes=(share, min(rows, _MAX_ROWS), rows, outputs, columns),
        workgroups=parts * -(-blocks // share),
    )


def sample_matrix(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array]:
    """A stored matrix of all possible integers, and its scale."""
    integers = rng.integers(-127, 128, size=(rows, columns), dtype=np.int8)
    scales = rng.uniform(0.001, 0.01, size=(rows, columns // packing.GROUP)).astype(np.float16)
    return packing.pack(integers, scales)


def _limits(types: Types, _: Attrs) -> None:
    x, weight, scale = types
    require_rows(x)
    require_matrix((weight,), scale, packing.QUADS)


linear_grouped: Fused = Fused(
    name="linear_grouped",
    doc="Rows (M, K), rounded to 16 bits per group of 32 columns, times a matrix (N, K) in groups.",
    reference=lambda x, weight, scale: grouped_product(rounded(x, STEPS), weight, scale),
    limits=_limits,
    kernel=lambda types, result, _: product_kernel("linear_grouped", types[0], result.shape[1]),
    samples=lambda rng: [
        Sample((normal(rng, 1, 32), *sample_matrix(rng, 16, 32))),
        Sample((normal(rng, 11, 32), *sample_matrix(rng, 16, 32))),
    ],
)
