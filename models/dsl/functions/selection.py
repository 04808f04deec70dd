"""Elements compared, and chosen by where they are."""

from __future__ import annotations

from models.dsl import ops
from models.dsl.functions.shapes import axis_of
from models.dsl.graph import Tensor
from models.dsl.types import DType

__all__ = ["eq", "gather", "ne", "tril"]


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


def tril(x: Tensor, *, diagonal: int = 0) -> Tensor:
    """x (..., M, N) with zeros above the diagonal, or the one `diagonal` places to its right."""
    rank = x.type.rank
    row = ops.iota(shape=x.shape, axis=rank - 2, dtype=DType.I32) + diagonal
    column = ops.iota(shape=x.shape, axis=rank - 1, dtype=DType.I32)
    return ops.select(ops.compare(column, row, direction="LE"), x, ops.full_like(x, 0.0))
