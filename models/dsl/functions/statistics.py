"""Axes folded away by more than a sum or a maximum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.functions.shapes import along_axes, axis_of
from hearthd.models.dsl.functions.wide import in_f32
from hearthd.models.dsl.types import DType, TypeRuleError

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["argmax", "mean", "variance"]


@in_f32
def mean(x: Tensor, *axes: int) -> Tensor:
    """The mean over some axes, or over all when none is named."""
    folded = _folded(x, axes)
    return ops.reduce_sum(x, axes=folded) * (1.0 / _count(x, folded))


@in_f32
def variance(x: Tensor, *axes: int, correction: int) -> Tensor:
    """The mean square distance from the mean; the sum is divided by the count - correction."""
    folded = _folded(x, axes)
    count = _count(x, folded)
    if count <= correction:
        raise TypeRuleError(f"variance: got {count} elements, expected more than {correction}")
    centered = x - along_axes(mean(x, *folded), x, folded)
    return ops.reduce_sum(centered * centered, axes=folded) * (1.0 / (count - correction))


def argmax(x: Tensor, *, axis: int) -> Tensor:
    """The index of the largest element along one axis, of equal ones the first: i32.

    NaN counts as larger than any number. It has no gradient. The extent is at most 2^24, up to
    which f32 counts.
    """
    axis = axis_of(x, axis)
    largest = along_axes(ops.reduce_max(x, axes=(axis,)), x, (axis,))
    index = ops.iota(shape=x.shape, axis=axis, dtype=DType.F32)
    nothing = ops.full_like(index, -math.inf)
    candidates = ops.select(ops.compare(x, largest, direction="EQ"), -index, nothing)
    # Beside a NaN the largest element is NaN, which equals none.
    candidates = ops.select(ops.compare(x, x, direction="NE"), -index, candidates)
    return ops.convert(-ops.reduce_max(candidates, axes=(axis,)), dtype=DType.I32)


def _folded(x: Tensor, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(axis_of(x, axis) for axis in axes or range(x.type.rank)))


def _count(x: Tensor, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[axis] for axis in axes)
