"""Slices of slices as one; slices of a whole tensor, and a tensor joined to nothing, as none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.graph import Apply, Graph, Tensor, op_of, rebuilt

if TYPE_CHECKING:
    from collections.abc import Callable


def with_merged_slices(graph: Graph) -> Graph:
    """The graph with one slice in place of each slice of a slice."""

    def replace(node: Tensor, mapped: Callable[[Tensor], Tensor]) -> Tensor | None:
        if op_of(node) is ops.concatenate and len(node.inputs) == 1:
            return mapped(node.inputs[0])
        if op_of(node) is not ops.slice_:
            return None
        (source,), bounds = node.inputs, _bounds(node)
        source = mapped(source)
        if source.shape == node.shape:
            return source
        if op_of(source) is not ops.slice_:
            return None
        outer = _bounds(source)
        bounds = tuple(
            (first + start * step, first + (stop - 1) * step + 1, step * inner)
            for (first, _, step), (start, stop, inner) in zip(outer, bounds, strict=True)
        )
        return ops.slice_(source.inputs[0], bounds=bounds)

    return rebuilt(graph, replace)


def _bounds(node: Tensor) -> tuple[tuple[int, int, int], ...]:
    assert isinstance(node.origin, Apply)
    bounds: tuple[tuple[int, int, int], ...] = node.origin.attrs["bounds"]
    return bounds
