"""`x[...]`: elements chosen by integers, slices, None and `...`, as torch reads them."""

from __future__ import annotations

import operator
from typing import Any

from hearthd.models.dsl.graph import OPERATORS, Tensor
from hearthd.models.dsl.ops.shape import reshape, slice_
from hearthd.models.dsl.types import TypeRuleError

__all__ = ["subscript"]


def subscript(x: Tensor, key: Any) -> Tensor:
    """Elements chosen by integers, slices with a positive step, None and `...`.

    An integer drops its axis, None adds one of extent 1, and `...` stands for the axes that are not
    named. Raises TypeRuleError, also for a slice without elements.
    """
    keys = key if isinstance(key, tuple) else (key,)
    try:
        return _chosen(x, _one_per_axis(x, keys))
    except TypeRuleError as error:
        raise TypeRuleError(f"{x.type}[{', '.join(map(_text, keys))}]: {error}") from None


OPERATORS["x[...]"] = subscript


def _one_per_axis(x: Tensor, keys: tuple[Any, ...]) -> list[Any]:
    """The keys, with full slices in place of `...` and of missing keys at the end."""
    places = [i for i, key in enumerate(keys) if key is Ellipsis]
    count = sum(key is not None and key is not Ellipsis for key in keys)
    if len(places) > 1:
        raise TypeRuleError("expected at most one `...`")
    if count > x.type.rank:
        raise TypeRuleError(f"expected at most {x.type.rank} indices, got {count}")
    position = places[0] if places else len(keys)
    full_slices = [slice(None)] * (x.type.rank - count)
    return [*keys[:position], *full_slices, *keys[position + 1 :]]


def _chosen(x: Tensor, keys: list[Any]) -> Tensor:
    bounds: list[tuple[int, int, int]] = []
    shape = []
    for key in keys:
        if key is None:
            shape.append(1)
            continue
        axis = len(bounds)
        bounds.append(_bounds(key, axis, x.shape[axis]))
        if isinstance(key, slice):
            start, stop, step = bounds[-1]
            shape.append(len(range(start, stop, step)))
    if any(bound != (0, extent, 1) for bound, extent in zip(bounds, x.shape, strict=True)):
        x = slice_(x, bounds=tuple(bounds))
    return x if x.shape == tuple(shape) else reshape(x, shape=tuple(shape))


def _bounds(key: Any, axis: int, extent: int) -> tuple[int, int, int]:
    """The (start, stop, step) along one axis."""
    if isinstance(key, slice):
        step = 1 if key.step is None else _integer(key.step)
        if step < 1:
            raise TypeRuleError(f"expected a positive step, got {step}")
        ends = (None if end is None else _integer(end) for end in (key.start, key.stop))
        start, stop, _ = slice(*ends).indices(extent)
        if start >= stop:
            raise TypeRuleError(f"axis {axis} of extent {extent} has no element in the slice")
        return start, stop, step
    index = _integer(key)
    if not -extent <= index < extent:
        raise TypeRuleError(f"expected an index from {-extent} to {extent - 1} for axis {axis}")
    return index % extent, index % extent + 1, 1


def _integer(value: Any) -> int:
    if isinstance(value, bool | Tensor) or not hasattr(value, "__index__"):
        raise TypeRuleError(
            f"expected integers, slices, None or `...`, got {value!r:.60}; gather takes slices at "
            "computed indices"
        )
    return operator.index(value)


def _text(key: Any) -> str:
    if not isinstance(key, slice):
        return "..." if key is Ellipsis else f"{key!r:.60}"
    ends = [key.start, key.stop, *([] if key.step is None else [key.step])]
    return ":".join("" if end is None else f"{end!r:.60}" for end in ends)
