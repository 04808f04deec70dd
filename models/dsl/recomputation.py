"""Gradients that compute segments of a function again instead of keeping their values.

The nodes of a function are cut where few bytes cross, as between the layers of a transformer. Only
what crosses is kept. The gradients of a segment read a copy of it, which is computed when they need
it (Chen et al., 2016).
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.graph import Apply, Input, Tensor, in_order, reapplied

if TYPE_CHECKING:
    from collections.abc import Sequence

# A cut may cross this many times the bytes of the smallest one.
_TOLERANCE = 1.25


def with_recomputation(value: Tensor, gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The gradients of a value, which read copies of the tensors that the value is computed from.

    Values stay the same, and so do gradients, as long as all are finite: see `_start`. The first
    segment and the last one are not computed again.
    """
    nodes = [node for node in in_order((value,)) if isinstance(node.origin, Apply)]
    return _Copies(nodes, gradients).of_gradients()


def varying(nodes: Sequence[Tensor]) -> set[int]:
    """The ids of the nodes that depend on an input."""
    dependent = set[int]()
    for node in nodes:
        if any(isinstance(x.origin, Input) or id(x) in dependent for x in node.inputs):
            dependent.add(id(node))
    return dependent


def _cuts(nodes: Sequence[Tensor], dependent: set[int]) -> list[int]:
    """The index of the first node of each segment."""
    indices = {id(node): index for index, node in enumerate(nodes)}
    last = {
        indices[id(x)]: at for at, node in enumerate(nodes) for x in node.inputs if id(x) in indices
    }
    ending = defaultdict[int, int](int)
    crossing, held = [], 0
    for index, node in enumerate(nodes):
        crossing.append(held)  # by the values of earlier nodes that this one or later ones read
        size = node.type.nbytes if id(node) in dependent else 0
        held += size
        ending[last.get(index, index)] += size
        held -= ending[index]
    middle = crossing[len(nodes) // 4 : len(nodes) * 3 // 4]
    limit = _TOLERANCE * min(middle, default=0)
    below = [index for index, held in enumerate(crossing) if index and held <= limit]
    return [index for before, index in pairwise([-1, *below]) if index != before + 1]


@dataclass(eq=False)
class _Copies:
    """The copies of a function's nodes that its gradients read.

    nodes      the nodes of the function, in order
    gradients  of the function
    """

    nodes: Sequence[Tensor]
    gradients: Sequence[Tensor]
    _last: int = 0  # the number of the last segment
    _segments: dict[int, int] = field(default_factory=dict)  # by id of a node
    _varying: set[int] = field(default_factory=set)
    _copied: set[int] = field(default_factory=set)
    _copies: dict[int, Tensor] = field(default_factory=dict)
    _starts: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    _late: dict[int, list[Tensor]] = field(default_factory=dict)  # by segment
    _new: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._varying = varying(self.nodes)
        cuts = _cuts(self.nodes, self._varying)
        self._last = len(cuts)
        for index, node in enumerate(self.nodes):
            self._segments[id(node)] = bisect_right(cuts, index)
        crossing = set[int]()
        for node in self.nodes:
            segment = self._segments[id(node)]
            for source in node.inputs:
                if self._segments.get(id(source), segment) < segment:
                    crossing.add(id(source))
                    is_copied = id(source) in self._varying
                else:
                    is_copied = id(source) in self._copied
                if is_copied and segment < self._last:
                    self._copied.add(id(node))
        self._copied -= crossing

    def of_gradients(self) -> tuple[Tensor, ...]:
        """The gradients on the copies."""
        after = [
            node
            for node in in_order(tuple(self.gradients))
            if isinstance(node.origin, Apply) and id(node) not in self._segments
        ]
        firsts = self._find_late(after)
        # A node reads those with the same first segment or a later one.
        for node in sorted(after, key=lambda node: -firsts[id(node)]):
            self._new[id(node)] = reapplied(node, self._read)
        return tuple(map(self._read, self.gradients))

    def _find_late(self, after: Sequence[Tensor]) -> dict[int, int]:
        """Find the tensors to compute before each segment's copy: the results of the next segment.

        If that has none, it is a tensor of the gradients between both. Returns the first segment
        that each node of the gradients depends on, by the node's id.
        """
        firsts: dict[int, int] = {}
        between: dict[int, Tensor] = {}
        for node in after:
            inside = [self._segments[id(x)] for x in node.inputs if id(x) in self._copied]
            before = [firsts[id(x)] for x in node.inputs if id(x) in firsts]
            firsts[id(node)] = min([*inside, *before], default=self._last)
            for source in node.inputs:
                if source.dtype.is_float and inside and firsts.get(id(source), 0) > min(inside):
                    between.setdefault(min(inside), source)
        copied, results = sorted(between), defaultdict[int, list[Tensor]](list)
        for gradient in self.gradients:
            below = bisect_left(copied, firsts.get(id(gradient), 0))
            if below:
                results[copied[below - 1]].append(gradient)
        self._late = {
            segment: results.get(segment, [source]) for segment, source in between.items()
        }
        return firsts

    def _read(self, tensor: Tensor) -> Tensor:
        """The input that the gradients read instead of a tensor."""
        if id(tensor) in self._copied:
            return self._copy(tensor)
        return self._new.get(id(tensor), tensor)

    def _copy(self, node: Tensor) -> Tensor:
        segment = self._segments[id(node)]
        pending = [node]
        while pending:
            top = pending[-1]
            missing = [x for x in top.inputs if self._is_missing(x, segment)]
            if missing:
                pending += missing
                continue
            pending.pop()
            self._copies[id(top)] = reapplied(top, lambda x: self._inside(x, segment))
        return self._copies[id(node)]

    def _is_missing(self, tensor: Tensor, segment: int) -> bool:
        is_inside = id(tensor) in self._copied and self._segments[id(tensor)] == segment
        return is_inside and id(tensor) not in self._copies

    def _inside(self, tensor: Tensor, segment: int) -> Tensor:
        """The input that the copy of a segment reads instead of a tensor."""
        if id(tensor) in self._copies and self._segments[id(tensor)] == segment:
            return self._copies[id(tensor)]
        is_crossing = id(tensor) in self._varying and self._segments[id(tensor)] < segment
        if not is_crossing or not tensor.dtype.is_float:
            return tensor
        if (segment, id(tensor)) not in self._starts:
            self._starts[segment, id(tensor)] = self._start(tensor, segment)
        return self._starts[segment, id(tensor)]

    def _start(self, tensor: Tensor, segment: int) -> Tensor:
        """A tensor plus 0 times what must be computed before it; NaN if that is not finite.

        The compiler takes this for another value, so that it computes the segment again.
        """
        if segment not in self._late:
            return ops.barrier(tensor)
        zeros = [
            ops.convert(self._first(gradient), dtype=tensor.dtype) * 0.0
            for gradient in self._late[segment]
        ]
        zero = functools.reduce(ops.add, zeros)
        return tensor + ops.broadcast(zero, shape=tensor.shape, axes=())

    def _first(self, late: Tensor) -> Tensor:
        """The first element of one of the gradients."""
        first = ops.slice_(self._read(late), bounds=tuple((0, 1, 1) for _ in late.shape))
        return ops.reshape(first, shape=())
