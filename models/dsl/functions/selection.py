"""Elements compared, and chosen by where they are."""

from __future__ import annotations

from hearthd.models.dsl import ops
from hearthd.models.dsl.functions.shapes import axis_of
from hearthd.models.dsl.graph import Tensor
from hearthd.models.dsl.types import DType

__all__ = ["eq", "gather", "ne", "top_k", "tril"]


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


def top_k(x: Tensor, count: int, *, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The `count` largest elements of each row of x (N, M), the largest first, and their indices.

    (N, count) and i32 (N, count); of equal elements the first is larger. With `values` (N, M),
    these at the indices in place of the elements. The extent M is at most 2^24, up to which f32
    counts.
    """
    rows, extent = x.shape
    ops.require(1 <= count <= extent, f"1 to {extent} elements, got {count}", "top_k")
    # An element's place is the number of those before it: one comparison of all with all, since
    # a sort, or one search after another, would be many dispatches.
    pairs = (rows, extent, extent)
    element, other = (ops.broadcast(x, shape=pairs, axes=(0, axis)) for axis in (1, 2))
    is_earlier = ops.compare(
        ops.iota(shape=pairs, axis=2, dtype=DType.I32),
        ops.iota(shape=pairs, axis=1, dtype=DType.I32),
        direction="LT",
    )
    ties = ops.logical_and(ops.compare(other, element, direction="EQ"), is_earlier)
    zeros, ones = ops.full_like(element, 0.0), ops.full_like(element, 1.0)
    is_before = ops.select(ops.compare(other, element, direction="GT"), ones, zeros)
    rank = ops.reduce_sum(ops.select(ties, ones, is_before), axes=(2,))
    shape = (rows, count, extent)
    number = ops.iota(shape=shape, axis=1, dtype=x.dtype)
    is_there = ops.compare(ops.broadcast(rank, shape=shape, axes=(0, 2)), number, direction="EQ")
    nothing = ops.full_like(number, 0.0)

    def taken(values: Tensor) -> Tensor:
        return ops.reduce_sum(ops.select(is_there, values, nothing), axes=(2,))

    index = taken(ops.iota(shape=shape, axis=2, dtype=x.dtype))
    # A NaN has no place of its own, and several indices would be added.
    index = ops.minimum(index, ops.full_like(index, float(extent - 1)))
    source = x if values is None else values
    elements = taken(ops.broadcast(source, shape=shape, axes=(0, 2)))
    return elements, ops.convert(index, dtype=DType.I32)


def tril(x: Tensor, *, diagonal: int = 0) -> Tensor:
    """x (..., M, N) with zeros above the diagonal, moved `diagonal` places to the right."""
    rank = x.type.rank
    row = ops.iota(shape=x.shape, axis=rank - 2, dtype=DType.I32) + diagonal
    column = ops.iota(shape=x.shape, axis=rank - 1, dtype=DType.I32)
    return ops.select(ops.compare(column, row, direction="LE"), x, ops.full_like(x, 0.0))
