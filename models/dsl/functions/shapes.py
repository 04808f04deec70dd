"""Tensors in other shapes: repeated, cut, joined, their axes in another order.

An axis below 0 is counted from the end.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.types import TypeRuleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.dsl.graph import Tensor

__all__ = [
    "along_axes",
    "along_channels",
    "along_last",
    "at",
    "axis_of",
    "chunk",
    "every",
    "flatten",
    "flatten_rows",
    "narrow",
    "pad2d",
    "permute",
    "repeated",
    "split",
    "squeeze",
    "stack",
    "trailing",
    "transpose",
    "unfold",
    "unsqueeze",
]


def axis_of(x: Tensor, axis: int) -> int:
    """The axis, from 0 on. Raises TypeRuleError when the tensor has no such axis."""
    rank = x.type.rank
    if not -rank <= axis < rank:
        raise TypeRuleError(f"{x}: expected an axis from {-rank} to {rank - 1}, got {axis}")
    return axis % rank


def flatten_rows(x: Tensor) -> Tensor:
    """(..., N) -> (rows, N)."""
    return ops.reshape(x, shape=(math.prod(x.shape[:-1]), x.shape[-1]))


def along_last(vector: Tensor, like: Tensor) -> Tensor:
    """A vector (N,) repeated to the shape (..., N) of another tensor."""
    return ops.broadcast(vector, shape=like.shape, axes=(like.type.rank - 1,))


def trailing(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Broadcast as NumPy does: axes are aligned at the end, extents of 1 are repeated."""
    axes = tuple(range(len(shape) - x.type.rank, len(shape)))
    return ops.broadcast(x, shape=shape, axes=axes)


def along_axes(reduced: Tensor, like: Tensor, axes: tuple[int, ...]) -> Tensor:
    """A tensor without `axes`, repeated along them to the shape of another."""
    folded = {axis_of(like, axis) for axis in axes}
    kept = tuple(axis for axis in range(like.type.rank) if axis not in folded)
    return ops.broadcast(reduced, shape=like.shape, axes=kept)


def along_channels(vector: Tensor, like: Tensor) -> Tensor:
    """A vector (C,) repeated to the shape (N, C, ...) of another tensor."""
    return ops.broadcast(vector, shape=like.shape, axes=(1,))


def repeated(x: Tensor, times: int) -> Tensor:
    """Each of the values (N,) a number of times: (N * times,)."""
    count = x.shape[0]
    return ops.reshape(ops.broadcast(x, shape=(count, times), axes=(0,)), shape=(count * times,))


# --- parts


def narrow(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """x[..., start:stop, ...] along one axis."""
    return every(x, axis, start, stop, 1)


def every(x: Tensor, axis: int, start: int, stop: int, step: int) -> Tensor:
    """x[..., start:stop:step, ...] along one axis."""
    bounds = [(0, extent, 1) for extent in x.shape]
    bounds[axis_of(x, axis)] = (start, stop, step)
    return ops.slice_(x, bounds=tuple(bounds))


def at(x: Tensor, index: int) -> Tensor:
    """x[index], without the axis."""
    return ops.reshape(narrow(x, 0, index, index + 1), shape=x.shape[1:])


def split(x: Tensor, sizes: Sequence[int], *, axis: int) -> tuple[Tensor, ...]:
    """Parts of x that are `sizes` long, one after the other along one axis."""
    axis = axis_of(x, axis)
    if min(sizes, default=0) < 1:
        raise TypeRuleError(f"split: expected sizes of at least 1, got {list(sizes)}")
    if sum(sizes) != x.shape[axis]:
        raise TypeRuleError(f"split: sizes {list(sizes)} do not add up to axis {axis} of {x}")
    stops = list(itertools.accumulate(sizes))
    return tuple(
        narrow(x, axis, stop - size, stop) for stop, size in zip(stops, sizes, strict=True)
    )


def chunk(x: Tensor, parts: int, *, axis: int) -> tuple[Tensor, ...]:
    """At most `parts` parts along one axis, of equal size except for a shorter last one."""
    extent = x.shape[axis_of(x, axis)]
    if parts < 1:
        raise TypeRuleError(f"chunk: expected at least 1 part, got {parts}")
    size = -(-extent // parts)
    return split(x, [min(size, extent - start) for start in range(0, extent, size)], axis=axis)


def unfold(x: Tensor, *, axis: int, size: int, step: int) -> Tensor:
    """Windows of `size` elements, `step` apart, along one axis: (..., windows, ..., size).

    An element in several windows gets the sum of their gradients. Elements after the last full
    window are dropped.
    """
    axis = axis_of(x, axis)
    if min(size, step) < 1:
        raise TypeRuleError(f"unfold: expected a size and a step of at least 1, got {size}, {step}")
    windows = (x.shape[axis] - size) // step + 1
    if windows < 1:
        raise TypeRuleError(f"unfold: no window of {size} fits into axis {axis} of {x}")
    span = (windows - 1) * step + 1
    return stack([every(x, axis, i, i + span, step) for i in range(size)], axis=x.type.rank)


# --- joined


def stack(tensors: Sequence[Tensor], *, axis: int = 0) -> Tensor:
    """Tensors of one type along a new axis."""
    rows = (unsqueeze(tensor, axis=axis) for tensor in tensors)
    return ops.concatenate(*rows, axis=axis if axis >= 0 else axis + tensors[0].type.rank + 1)


def pad2d(x: Tensor, padding: tuple[int, int, int, int], *, value: float = 0.0) -> Tensor:
    """x (..., H, W) with (left, right, top, bottom) more elements around, each `value`."""
    left, right, top, bottom = padding
    around = ((top, bottom, 0), (left, right, 0))
    return ops.pad(x, padding=((0, 0, 0),) * (x.type.rank - 2) + around, value=value)


# --- the same elements


def permute(x: Tensor, *order: int) -> Tensor:
    """Axis i of the result is axis order[i] of x."""
    return ops.transpose(x, order=tuple(axis_of(x, axis) for axis in order))


def transpose(x: Tensor, first: int, second: int) -> Tensor:
    """x with two axes in each other's place."""
    order = list(range(x.type.rank))
    first, second = axis_of(x, first), axis_of(x, second)
    order[first], order[second] = second, first
    return ops.transpose(x, order=tuple(order))


def flatten(x: Tensor, *, first: int = 0, last: int = -1) -> Tensor:
    """The axes from `first` to `last` as one."""
    start, stop = axis_of(x, first), axis_of(x, last) + 1
    if start >= stop:
        raise TypeRuleError(f"flatten: expected first <= last, got {first} and {last} for {x}")
    size = math.prod(x.shape[start:stop])
    return ops.reshape(x, shape=(*x.shape[:start], size, *x.shape[stop:]))


def squeeze(x: Tensor, *, axis: int) -> Tensor:
    """x without one axis, which has the extent 1."""
    axis = axis_of(x, axis)
    if x.shape[axis] != 1:
        raise TypeRuleError(f"squeeze: axis {axis} of {x} is not 1")
    return ops.reshape(x, shape=x.shape[:axis] + x.shape[axis + 1 :])


def unsqueeze(x: Tensor, *, axis: int) -> Tensor:
    """x with a new axis of the extent 1, which is that axis of the result."""
    rank = x.type.rank + 1
    if not -rank <= axis < rank:
        raise TypeRuleError(f"unsqueeze: {x} has no place for an axis {axis}")
    axis %= rank
    return ops.reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))
