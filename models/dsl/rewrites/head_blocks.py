"""Divide long attention into blocks of heads, with the ops on single heads around it.

Blocks of rows would each prepare all keys and values.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.graph import Apply, Graph, Tensor, op_of
from hearthd.models.dsl.rewrites.row_blocks import is_elementwise, readers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Mapped = Callable[[Tensor], Tensor]


class HeadBlocks:
    """Divides attention that has more operations than a limit.

    Heads are on axis 1 of queries (rows, heads, width), and side by side in the columns of keys
    and values. Ops on single heads before attention are computed in the same blocks if nothing
    else reads them, and so is a slice of its result.
    """

    def __init__(self, graph: Graph, work: Callable[[Tensor], int], limit: int) -> None:
        self._work, self._limit, self._readers = work, limit, readers_of(graph)
        self._divided: dict[int, list[Tensor]] = {}

    def divided(self, node: Tensor, mapped: Mapped) -> Tensor | None:
        """Attention as blocks of heads, joined; None for a node that is not divided.

        `mapped` gives the tensors in the places of the node's inputs and of all before them.
        """
        blocks = self._slices_of_blocks(node) or self._attention(node, mapped)
        if blocks is None:
            return None
        self._divided[id(node)] = blocks
        return ops.concatenate(*blocks, axis=1)

    def _slices_of_blocks(self, node: Tensor) -> list[Tensor] | None:
        blocks = self._divided.get(id(node.inputs[0])) if op_of(node) is ops.slice_ else None
        if blocks is None or not _has_all_heads(node):
            return None
        assert isinstance(node.origin, Apply)
        first, _, *others = node.origin.attrs["bounds"]
        return [ops.slice_(x, bounds=(first, (0, x.shape[1], 1), *others)) for x in blocks]

    def _attention(self, node: Tensor, mapped: Mapped) -> list[Tensor] | None:
        op = op_of(node)
        if not isinstance(op, Fused) or not op.heads_apart:
            return None
        query, key = node.inputs[:2]
        groups = key.shape[1] // query.shape[2]
        each = max(1, groups * self._limit // max(1, self._work(node)))
        if each >= groups:
            return None
        ends = [*range(0, groups, each), groups]
        return [
            _Block(self._readers, mapped, start, end, groups).attention(node)
            for start, end in pairwise(ends)
        ]


class _Block:
    """Some of the groups of heads that share keys."""

    def __init__(
        self, readers: dict[int, set[int]], mapped: Mapped, start: int, end: int, groups: int
    ) -> None:
        self._readers, self._mapped = readers, mapped
        self._start, self._end, self._groups = start, end, groups

    def attention(self, node: Tensor) -> Tensor:
        assert isinstance(node.origin, Apply)
        query, key, value, *others = node.inputs
        heads = map(self._of, (query, key, value))
        return node.origin.op(*heads, *map(self._mapped, others), **node.origin.attrs)

    def _range(self, extent: int, start: int = 0) -> tuple[int, int]:
        each = extent // self._groups
        return start + each * self._start, start + each * self._end

    def _of(self, tensor: Tensor) -> Tensor:
        """The heads of a tensor, which has them on axis 1 alone or with their columns."""
        if len(self._readers[id(tensor)]) == 1 and (heads := self._computed(tensor)) is not None:
            return heads
        return f.narrow(self._mapped(tensor), 1, *self._range(tensor.shape[1]))

    def _computed(self, tensor: Tensor) -> Tensor | None:
        """The heads of a tensor that ops on single heads compute; None for another tensor."""
        origin = tensor.origin
        if not isinstance(origin, Apply):
            return None
        op, attrs, inputs = origin.op, origin.attrs, tensor.inputs
        start, end = self._range(tensor.shape[1])
        shape = (tensor.shape[0], end - start, *tensor.shape[2:])
        if is_elementwise(op) and all(x.shape == tensor.shape for x in inputs):
            return op(*map(self._of, inputs), **attrs)
        if op is ops.broadcast:
            return _broadcast_heads(self._mapped(inputs[0]), shape, attrs["axes"], start, end)
        if op is ops.full:
            return op(**{**attrs, "shape": shape})
        if op is ops.reshape and _joins_columns(inputs[0], tensor):
            return op(self._of(inputs[0]), shape=shape)
        if op is ops.slice_ and not _has_all_heads(tensor):
            return self._slice(tensor)
        if op is ops.slice_:
            rows, _, *others = attrs["bounds"]
            x = self._of(inputs[0])
            return op(x, bounds=(rows, (0, x.shape[1], 1), *others))
        if op is ops.pad and not any(attrs["padding"][1]):
            return op(self._of(inputs[0]), **attrs)
        if op is ops.concatenate and attrs["axis"] != 1:
            return op(*map(self._of, inputs), **attrs)
        return None

    def _slice(self, tensor: Tensor) -> Tensor:
        """The block's heads of a slice of heads, as one slice."""
        assert isinstance(tensor.origin, Apply)
        rows, (first, _, step), *others = tensor.origin.attrs["bounds"]
        start, end = self._range(tensor.shape[1])
        heads = (first + start * step, first + (end - 1) * step + 1, step)
        return ops.slice_(self._mapped(tensor.inputs[0]), bounds=(rows, heads, *others))


def _has_all_heads(node: Tensor) -> bool:
    """Whether a slice has all of axis 1."""
    return node.shape[1] == node.inputs[0].shape[1]


def _joins_columns(source: Tensor, result: Tensor) -> bool:
    """Whether rows (N, H, W) become (N, H * W) or the other way round."""
    ranks = source.type.rank, result.type.rank
    return source.shape[0] == result.shape[0] and sorted(ranks) == [2, 3]


def _broadcast_heads(
    x: Tensor, shape: tuple[int, ...], axes: tuple[int, ...], start: int, end: int
) -> Tensor:
    """A tensor repeated to `shape`, whose axis 1 has heads `start` to `end`."""
    if 1 in axes and x.shape[axis := axes.index(1)] > 1:
        x = f.narrow(x, axis, start, end)
    return ops.broadcast(x, shape=shape, axes=axes)
