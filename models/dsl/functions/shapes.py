"""Tensors in other shapes: repeated, cut, flattened."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from models.dsl import ops

if TYPE_CHECKING:
    from models.dsl.graph import Tensor

__all__ = ["along_last", "along_rows", "flatten_rows", "narrow", "trailing"]


def flatten_rows(x: Tensor) -> Tensor:
    """(..., N) -> (rows, N)."""
    return ops.reshape(x, shape=(math.prod(x.shape[:-1]), x.shape[-1]))


def along_last(vector: Tensor, like: Tensor) -> Tensor:
    """A vector (N,) repeated to the shape (..., N) of another tensor."""
    return ops.broadcast(vector, shape=like.shape, axes=(like.type.rank - 1,))


def along_rows(column: Tensor, like: Tensor) -> Tensor:
    """A tensor (...) repeated along a new last axis, to the shape (..., N) of another tensor."""
    return ops.broadcast(column, shape=like.shape, axes=tuple(range(like.type.rank - 1)))


def trailing(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Broadcast as NumPy does: axes are aligned at the end, extents of 1 are repeated."""
    axes = tuple(range(len(shape) - x.type.rank, len(shape)))
    return ops.broadcast(x, shape=shape, axes=axes)


def narrow(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """x[..., start:stop, ...] along one axis."""
    bounds = [(0, extent, 1) for extent in x.shape]
    bounds[axis] = (start, stop, 1)
    return ops.slice_(x, bounds=tuple(bounds))
