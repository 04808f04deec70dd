"""Tensors in other shapes: repeated, cut, flattened."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from models.dsl import ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from models.dsl.graph import Tensor

__all__ = ["along_last", "along_rows", "at", "flatten_rows", "narrow", "stack", "trailing"]


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


def at(x: Tensor, index: int) -> Tensor:
    """x[index], without the axis."""
    return ops.reshape(narrow(x, 0, index, index + 1), shape=x.shape[1:])


def stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one type along a new first axis."""
    rows = (ops.reshape(tensor, shape=(1, *tensor.shape)) for tensor in tensors)
    return ops.concatenate(*rows, axis=0)
