"""Products with matrices of int8 in groups (models/dsl/packing.py).

The compiler's own form of such a product is several times slower, and the more so the more rows
there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops, packing
from hearthd.models.dsl.activations import (
    bits_of,
    kernel_name,
    require_bits,
    require_rows,
    rounded,
    steps,
)
from hearthd.models.dsl.composite import Fused, composite
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types

__all__ = ["linear_grouped"]

# Blocks of sixteen outputs and rows that one workgroup computes, and workgroups of a product.
_MAX_BLOCKS, _MAX_ROWS, MIN_WORKGROUPS = 64, 32, 8
# Activations of 8 bits are multiplied in half the time, so that rounding them twice matters.
_MAX_SMALL_ROWS = 16


def require_matrix(integers: tuple[TensorType, ...], scale: TensorType, quads: int) -> None:
    """Raise TypeRuleError unless integers and scale are those of a matrix in groups."""
    blocks, groups = scale.shape[0], scale.shape[1]
    shape = (blocks, groups, quads, packing.LANES)
    require(
        all(part == TensorType(shape, DType.I8) for part in integers)
        and scale == TensorType((blocks, groups, packing.ROWS), DType.F16),
        f"integers i8 (N / 16, K / 32, {quads}, 64) and a scale f16 (N / 16, K / 32, 16)",
    )


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
    name: str,
    types: Types,
    outputs: int,
    attrs: Attrs,
    *,
    matrix: int = 1,
    workgroups: int = MIN_WORKGROUPS,
) -> Kernel:
    """A kernel whose workgroups share the rows and the blocks of sixteen outputs.

    `types` are those of its inputs: of x (M, K) and, from `matrix` on, of the arrays of a matrix.
    Each workgroup rounds its rows, so rows are divided first, and then blocks, until there are
    `workgroups` of them or one for each block.
    """
    rows, columns = types[0].shape
    blocks = outputs // packing.ROWS
    activation_bits = bits_of(attrs)
    max_rows = _MAX_SMALL_ROWS if activation_bits == 8 else _MAX_ROWS
    parts = -(-rows // max_rows)
    share = min(_MAX_BLOCKS, -(-blocks // -(-workgroups // parts)))
    own = (one.size // blocks * share if one.rank > 2 else 0 for one in types[matrix:])
    return Kernel(
        function=kernel_name(name, activation_bits),
        sizes=(share, min(rows, max_rows), rows, outputs, columns),
        workgroups=parts * -(-blocks // share),
        own=(*[0] * matrix, *own) if parts == 1 else (),
    )


def sample_matrix(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array]:
    """A stored matrix of all possible integers, and its scale."""
    integers = rng.integers(-127, 128, size=(rows, columns), dtype=np.int8)
    scales = rng.uniform(0.001, 0.01, size=(rows, columns // packing.GROUP)).astype(np.float16)
    return packing.pack(integers, scales)


def _linear_grouped(
    x: Tensor, weight: Tensor, scale: Tensor, *, activation_bits: int = 16
) -> Tensor:
    return grouped_product(rounded(x, steps(8, activation_bits)), weight, scale)


def _limits(types: Types, attrs: Attrs) -> None:
    x, weight, scale = types
    require_rows(x)
    require_bits(attrs)
    require_matrix((weight,), scale, packing.QUADS)


linear_grouped: Fused = Fused(
    name="linear_grouped",
    doc="Rows (M, K), rounded to 16 bits per group of 32 columns, or to 8 (`activation_bits`), "
    "times a matrix (N, K) in groups.",
    reference=_linear_grouped,
    limits=_limits,
    kernel=lambda types, result, attrs: product_kernel(
        "linear_grouped", types, result.shape[1], attrs
    ),
    samples=lambda rng: [
        Sample((normal(rng, 1, 32), *sample_matrix(rng, 16, 32))),
        Sample((normal(rng, 11, 32), *sample_matrix(rng, 16, 32))),
        Sample((normal(rng, 17, 32), *sample_matrix(rng, 16, 32)), {"activation_bits": 8}),
    ],
)
