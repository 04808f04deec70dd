"""Elements compared, and chosen by where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.shapes import axis_of
from hearthd.models.dsl.graph import Tensor
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.ops.record import Array, Attrs

__all__ = ["eq", "gather", "ne", "top_indices", "tril"]


def eq(x: Tensor, y: Tensor | float) -> Tensor:
    """Whether elements are equal, as booleans; y is a tensor of x's type or a number.

    `x == y` compares the identity of two tensors; `<`, `<=`, `>` and `>=` compare elements.
    """
    return ops.compare(x, _tensor(y, x), direction="EQ")


def ne(x: Tensor, y: Tensor | float) -> Tensor:
    """Whether elements differ, as booleans; y is a tensor of x's type or a number."""
    return ops.compare(x, _tensor(y, x), direction="NE")


def _tensor(value: Tensor | float, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else ops.full_like(like, value)


def gather(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """x's slices along one axis at i32 indices of any shape, which takes the place of the axis.

    (V, E) by (B, S) along 0 is (B, S, E). A slice that is chosen twice adds both gradients.
    """
    return ops.gather(x, indices, axis=axis_of(x, axis))


def _stable_order(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    (x,) = arrays
    # NaN counts as infinity. In the kernel it is above infinity, or below -infinity by its sign.
    x = np.where(np.isnan(x), np.inf, x)
    return np.argsort(-x, axis=1, kind="stable")[:, : attrs["count"]].astype(np.int32)


@composite(in_numpy=_stable_order)
def top_indices(x: Tensor, *, count: int) -> Tensor:
    """The indices of the `count` largest elements of each row of x (N, M): i32 (N, count).

    The index of the largest element comes first, and of equal elements the lower index. The extent
    M is at most 2^24, up to which f32 counts.
    """
    rows, extent = x.shape
    ops.require(1 <= count <= extent, f"1 to {extent} elements, got {count}")
    # An element's place is the number of those before it: one comparison of all with all, since
    # a sort, or one search after another, would be many dispatches.
    pairs = (rows, extent, extent)
    element, other = (ops.broadcast(x, shape=pairs, axes=(0, axis)) for axis in (1, 2))
    earlier = ops.compare(
        ops.iota(shape=pairs[1:], axis=1, dtype=DType.I32),
        ops.iota(shape=pairs[1:], axis=0, dtype=DType.I32),
        direction="LT",
    )
    ties = ops.logical_and(
        ops.compare(other, element, direction="EQ"),
        ops.broadcast(earlier, shape=pairs, axes=(1, 2)),
    )
    zeros, ones = ops.full_like(element, 0.0), ops.full_like(element, 1.0)
    is_before = ops.select(ops.compare(other, element, direction="GT"), ones, zeros)
    place = ops.reduce_sum(ops.select(ties, ones, is_before), axes=(2,))
    shape = (rows, count, extent)
    number = ops.iota(shape=shape, axis=1, dtype=x.dtype)
    is_there = ops.compare(ops.broadcast(place, shape=shape, axes=(0, 2)), number, direction="EQ")
    index = ops.iota(shape=shape, axis=2, dtype=x.dtype)
    index = ops.reduce_sum(ops.select(is_there, index, ops.full_like(index, 0.0)), axes=(2,))
    # A NaN has no place of its own, and several indices would be added.
    index = ops.minimum(index, ops.full_like(index, float(extent - 1)))
    return ops.convert(index, dtype=DType.I32)


def tril(x: Tensor, *, diagonal: int = 0) -> Tensor:
    """x (..., M, N) with zeros above the diagonal, moved `diagonal` places to the right."""
    rank = x.type.rank
    row = ops.iota(shape=x.shape, axis=rank - 2, dtype=DType.I32) + diagonal
    column = ops.iota(shape=x.shape, axis=rank - 1, dtype=DType.I32)
    return ops.select(ops.compare(column, row, direction="LE"), x, ops.full_like(x, 0.0))
