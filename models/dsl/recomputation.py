"""Gradients that compute parts of a function again instead of keeping their values.

The nodes of a function are cut where few bytes cross, as between the layers of a transformer. Only
what crosses is kept. The gradients of a part read a copy of it, which is computed when they need it
(Chen et al., 2016).
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
    part and the last one are not computed again.
    """
    nodes = [node for node in in_order((value,)) if isinstance(node.origin, Apply)]
    return _Copies(nodes, gradients).of_gradients()


def _varying(nodes: Sequence[Tensor]) -> set[int]:
    """The ids of the nodes that depend on an input."""
    varying = set[int]()
    for node in nodes:
        if any(isinstance(x.origin, Input) or id(x) in varying for x in node.inputs):
            varying.add(id(node))
    return varying


def _cuts(nodes: Sequence[Tensor], varying: set[int]) -> list[int]:
    """The nodes with which parts begin, by index."""
    places = {id(node): place for place, node in enumerate(nodes)}
    last = {
        places[id(x)]: at for at, node in enumerate(nodes) for x in node.inputs if id(x) in places
    }
    ending = defaultdict[int, int](int)
    crossing, held = [], 0
    for place, node in enumerate(nodes):
        crossing.append(held)  # by the values of earlier nodes that this one or later ones read
        size = node.type.nbytes if id(node) in varying else 0
        held += size
        ending[last.get(place, place)] += size
        held -= ending[place]
    middle = crossing[len(nodes) // 4 : len(nodes) * 3 // 4]
    limit = _TOLERANCE * min(middle, default=0)
    below = [place for place, held in enumerate(crossing) if place and held <= limit]
    return [place for before, place in pairwise([-1, *below]) if place != before + 1]


@dataclass(eq=False)
class _Copies:
    """The copies of a function's nodes that its gradients read.

    nodes      those of the function, in order
    gradients  of the function
    """

    nodes: Sequence[Tensor]
    gradients: Sequence[Tensor]
    _last: int = 0  # the number of the last part
    _parts: dict[int, int] = field(default_factory=dict)  # by id of a node
    _varying: set[int] = field(default_factory=set)
    _copied: set[int] = field(default_factory=set)
    _copies: dict[int, Tensor] = field(default_factory=dict)
    _starts: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    _late: dict[int, list[Tensor]] = field(default_factory=dict)  # by part
    _new: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._varying = _varying(self.nodes)
        cuts = _cuts(self.nodes, self._varying)
        self._last = len(cuts)
        for place, node in enumerate(self.nodes):
            self._parts[id(node)] = bisect_right(cuts, place)
        crossing = set[int]()
        for node in self.nodes:
            part = self._parts[id(node)]
            for source in node.inputs:
                if self._parts.get(id(source), part) < part:
                    crossing.add(id(source))
                    is_copied = id(source) in self._varying
                else:
                    is_copied = id(source) in self._copied
                if is_copied and part < self._last:
                    self._copied.add(id(node))
        self._copied -= crossing

    def of_gradients(self) -> tuple[Tensor, ...]:
        """The gradients on the copies."""
        after = [
            node
            for node in in_order(tuple(self.gradients))
            if isinstance(node.origin, Apply) and id(node) not in self._parts
        ]
        firsts = self._find_late(after)
        # A node reads those with the same first part or a later one.
        for node in sorted(after, key=lambda node: -firsts[id(node)]):
            self._new[id(node)] = reapplied(node, self._read)
        return tuple(map(self._read, self.gradients))

    def _find_late(self, after: Sequence[Tensor]) -> dict[int, int]:
        """For each part, what is computed before its copy: the results of the part behind it.

        If that has none, it is a tensor of the gradients between both. Returns the first part that
        each node of the gradients depends on, by the node's id.
        """
        firsts: dict[int, int] = {}
        between: dict[int, Tensor] = {}
        for node in after:
            inside = [self._parts[id(x)] for x in node.inputs if id(x) in self._copied]
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
        self._late = {part: results.get(part, [source]) for part, source in between.items()}
        return firsts

    def _read(self, tensor: Tensor) -> Tensor:
        """What the gradients read in the place of a tensor."""
        if id(tensor) in self._copied:
            return self._copy(tensor)
        return self._new.get(id(tensor), tensor)

    def _copy(self, node: Tensor) -> Tensor:
        part = self._parts[id(node)]
        pending = [node]
        while pending:
            top = pending[-1]
            missing = [x for x in top.inputs if self._is_missing(x, part)]
            if missing:
                pending += missing
                continue
            pending.pop()
            self._copies[id(top)] = reapplied(top, lambda x: self._inside(x, part))
        return self._copies[id(node)]

    def _is_missing(self, tensor: Tensor, part: int) -> bool:
        is_inside = id(tensor) in self._copied and self._parts[id(tensor)] == part
        return is_inside and id(tensor) not in self._copies

    def _inside(self, tensor: Tensor, part: int) -> Tensor:
        """What the copy of a part reads in the place of a tensor."""
        if id(tensor) in self._copies and self._parts[id(tensor)] == part:
            return self._copies[id(tensor)]
        is_crossing = id(tensor) in self._varying and self._parts[id(tensor)] < part
        if not is_crossing or not tensor.dtype.is_float:
            return tensor
        if (part, id(tensor)) not in self._starts:
            self._starts[part, id(tensor)] = self._start(tensor, part)
        return self._starts[part, id(tensor)]

    def _start(self, tensor: Tensor, part: int) -> Tensor:
        """A tensor plus 0 times what must be computed before it; NaN if that is not finite.

        The compiler takes this for another value, so that it computes the part again.
        """
        if part not in self._late:
            return ops.barrier(tensor)
        zeros = [
            ops.convert(self._first(gradient), dtype=tensor.dtype) * 0.0
            for gradient in self._late[part]
        ]
        zero = functools.reduce(ops.add, zeros)
        return tensor + ops.broadcast(zero, shape=tensor.shape, axes=())

    def _first(self, late: Tensor) -> Tensor:
        """The first element of one of the gradients."""
        first = ops.slice_(self._read(late), bounds=tuple((0, 1, 1) for _ in late.shape))
        return ops.reshape(first, shape=())
