"""A matrix of int8 in groups and in halves (models/dsl/grouped.py): an output head that reads less.

`linear_upper` computes all outputs coarsely, from the upper halves alone. `linear_refined` computes
those again that may matter, from whole integers. The kernels are in models/dsl/kernels/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.dsl import grouped
from models.dsl.ops.grouped import (
    NO_GRADIENT,
    product,
    product_kernel,
    product_type,
    rounded,
    sample_matrix,
    scale_type,
)
from models.dsl.ops.record import Array, Attrs, Kernel, Op, Reads, Sample, operands, require
from models.dsl.ops.samples import normal
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from models.dsl.ops.record import Types

__all__ = ["embedding_halved", "linear_refined", "linear_upper"]


def _matrix(halves: list[TensorType], scale: TensorType) -> tuple[int, int]:
    """(N, K); refuses what is not stored so."""
    shape = grouped.matrix_shape(halves[0].shape, halved=True)
    require(
        all(half == halves[0].with_dtype(DType.I8) for half in halves)
        and scale == scale_type(halves[0]),
        "halves i8 (N / 16, K / 32, 4, 64) and a scale f16 (N / 16, K / 32, 16)",
    )
    return shape


def _sample(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array, Array]:
    weight, scale = sample_matrix(rng, rows, columns)
    return (*grouped.split(weight), scale)


# --- linear_upper


def _infer_upper(types: Types, _: Attrs) -> TensorType:
    x, upper, scale, skipped = operands(types, 4)
    result = product_type(x, *_matrix([upper], scale))
    require(skipped == TensorType((x.shape[0],), DType.I32), "flags i32 (M,)")
    return result


def _evaluate_upper(arrays: tuple[Array, ...], _: Attrs) -> Array:
    x, upper, scale, skipped = arrays
    if skipped.all():
        return np.zeros((len(x), len(upper) * grouped.ROWS), x.dtype)

    def unpacked(some: slice) -> Array:
        return grouped.unpack(grouped.join(upper[some], None), scale[some])

    return product(rounded(x, 1), unpacked, len(upper))


def _upper_sample(rng: np.random.Generator, skipped: list[int]) -> Sample:
    upper, _, scale = _sample(rng, 16, 32)
    x = normal(rng, len(skipped), 32)
    return Sample((x, upper, scale, np.array(skipped, np.int32)))


linear_upper: Op = Op(
    name="linear_upper",
    doc="Rows (M, K), rounded to 8 bits a group, times the upper halves of a matrix (N, K): "
    "each integer counts as the middle of those with its upper half. Zeros if all are skipped.",
    infer=_infer_upper,
    evaluate=_evaluate_upper,
    lower=lambda types, result, _: product_kernel("linear_upper", types[0], result.shape[1]),
    vjp=NO_GRADIENT,
    samples=lambda rng: [_upper_sample(rng, skipped) for skipped in ([0], [0, 1] * 5, [1, 1])],
    reads=Reads.IN_PLACE,
    is_stored=True,
)


# --- linear_refined


def _infer_refined(types: Types, _: Attrs) -> TensorType:
    x, upper, lower, scale, coarse, threshold = operands(types, 6)
    result = product_type(x, *_matrix([upper, lower], scale))
    require(
        coarse == result and threshold == x.with_shape(x.shape[0]),
        "coarse products (M, N) and a threshold (M,) of the rows' dtype",
    )
    return result


def _evaluate_refined(arrays: tuple[Array, ...], _: Attrs) -> Array:
    x, upper, lower, scale, coarse, threshold = arrays
    x = rounded(x, 2)
    blocks = coarse.reshape(len(x), -1, grouped.ROWS)
    matters = blocks.max(axis=2) >= threshold[:, np.newaxis]
    refined = blocks.copy()
    for row in np.flatnonzero(matters.any(axis=1)):
        own = np.flatnonzero(matters[row])

        def unpacked(some: slice, own: Array = own) -> Array:
            which = own[some]
            return grouped.unpack(grouped.join(upper[which], lower[which]), scale[which])

        whole = product(x[row : row + 1], unpacked, own.size)
        refined[row, own] = whole.reshape(-1, grouped.ROWS)
    return refined.reshape(coarse.shape)


def _refined_sample(rng: np.random.Generator) -> Sample:
    upper, lower, scale = _sample(rng, 48, 32)
    coarse = normal(rng, 3, 48)
    # Some blocks of the first row, none of the second, all of the third.
    threshold = np.array([np.sort(coarse[0])[-3], 100, -100], np.float32)
    return Sample((normal(rng, 3, 32), upper, lower, scale, coarse, threshold))


linear_refined: Op = Op(
    name="linear_refined",
    doc="Coarse products (M, N), with those of `linear_grouped` in each block of sixteen outputs "
    "of which one reaches its row's threshold.",
    infer=_infer_refined,
    evaluate=_evaluate_refined,
    lower=lambda types, result, _: product_kernel("linear_refined", types[0], result.shape[1]),
    vjp=NO_GRADIENT,
    samples=lambda rng: [_refined_sample(rng)],
    reads=Reads.IN_PLACE,
    is_stored=True,
)


# --- embedding_halved


def _infer_embedding(types: Types, _: Attrs) -> TensorType:
    ids, upper, lower, scale = operands(types, 4)
    columns = _matrix([upper, lower], scale)[1]
    require(ids.dtype is DType.I32 and ids.rank == 1, "ids i32 (M,)")
    return TensorType((*ids.shape, columns), DType.F32)


embedding_halved: Op = Op(
    name="embedding_halved",
    doc="Rows of a matrix (V, E) in groups and in halves, by their ids: f32 (M, E).",
    infer=_infer_embedding,
    evaluate=lambda arrays, _attrs: grouped.unpack_rows(*arrays),
    lower=lambda types, result, _: Kernel(
        function="embedding_halved", sizes=(result.shape[1],), workgroups=types[0].size
    ),
    vjp=NO_GRADIENT,
    samples=lambda rng: [Sample((np.array([13, 0, 15], np.int32), *_sample(rng, 16, 32)))],
    reads=Reads.LOOKED_UP,
    is_stored=True,
)
