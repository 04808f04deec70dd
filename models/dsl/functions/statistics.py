"""Axes folded away by more than a sum or a maximum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from models.dsl import ops
from models.dsl.functions.shapes import along_axes, axis_of
from models.dsl.types import DType

if TYPE_CHECKING:
    from models.dsl.graph import Tensor

__all__ = ["argmax", "mean", "variance"]


def mean(x: Tensor, *axes: int) -> Tensor:
    """The mean over some axes, or over all when none is named."""
    folded = _folded(x, axes)
    return ops.reduce_sum(x, axes=folded) * (1.0 / _count(x, folded))


def variance(x: Tensor, *axes: int, correction: int) -> Tensor:
    """The mean square distance from the mean; the sum is divided by the count - correction."""
    folded = _folded(x, axes)
    apart = x - along_axes(mean(x, *folded), x, folded)
    return ops.reduce_sum(apart * apart, axes=folded) * (1.0 / (_count(x, folded) - correction))


def argmax(x: Tensor, *, axis: int) -> Tensor:
    """The index of the largest element along one axis, of equal ones the first: i32.

    It has no gradient. The extent is at most 2^24, up to which f32 counts.
    """
    axis = axis_of(x, axis)
    largest = along_axes(ops.reduce_max(x, axes=(axis,)), x, (axis,))
    index = ops.iota(shape=x.shape, axis=axis, dtype=DType.F32)
    candidates = ops.select(
        ops.compare(x, largest, direction="EQ"), -index, ops.full_like(index, -math.inf)
    )
    return ops.convert(-ops.reduce_max(candidates, axes=(axis,)), dtype=DType.I32)


def _folded(x: Tensor, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(axis_of(x, axis) for axis in axes or range(x.type.rank)))


def _count(x: Tensor, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[axis] for axis in axes)
