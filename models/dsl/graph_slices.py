"""A long function as slices: functions that compute it one after the other.

The results of a slice are the arguments of the next one. A caller can do other work between two
slices, and stop after any of them.

Values that are stored are behind barriers: where the compiler fuses a LayerNorm both with a sum
before it that is stored, and with a result or with blocks of rows, it exceeds its stack.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.graph import (
    Apply,
    Graph,
    Input,
    Tensor,
    make_graph,
    op_of,
    reapplied,
    rebuilt,
)
from hearthd.models.dsl.recomputation import varying
from hearthd.models.dsl.rewrites.head_blocks import HeadBlocks
from hearthd.models.dsl.rewrites.row_blocks import RowBlocks
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

# Two cores of a Sapphire Rapids do 600 GFLOP/s in products with weights of int8, 300 in attention.
_ATTENTION = 2
# What they do meanwhile for an element that is computed, and for one that is copied to others.
_COMPUTED, _COPIED = 64, 512
_COPIES = (ops.concatenate, ops.pad, ops.transpose)
# Those that store no element.
_VIEWS = (ops.barrier, ops.broadcast, ops.full, ops.reshape, ops.slice_)


def sliced(graph: Graph, limit: int) -> tuple[Graph, ...]:
    """Divide a graph into slices of at most `limit` operations: see `work`.

    A slice with more has one op, or 64 rows of one. Of the cuts that leave a slice at least half of
    the limit, it takes the cut that the fewest bytes cross. Values that depend on no argument are
    computed in each slice that reads them.
    """
    assert not graph.in_place, "a slice updates no argument"
    graph = rebuilt(graph, HeadBlocks(graph, work, limit).divided)
    graph = rebuilt(graph, RowBlocks(graph, work, limit).divided)
    dependent = varying(graph.nodes)
    nodes = [node for node in graph.nodes if id(node) in dependent]
    values = _Values(graph, nodes)
    cuts = [0, *_cuts(nodes, values, limit), len(nodes)]
    if len(cuts) == 2:
        return (graph,)
    slices, inputs = [], graph.inputs
    for number, (start, end) in enumerate(pairwise(cuts)):
        new = dict(zip(map(id, values.crossing(start)), inputs, strict=True))

        def mapped(tensor: Tensor, new: dict[int, Tensor] = new) -> Tensor:
            return new.get(id(tensor), tensor)

        results = values.crossing(end)
        stored = {id(result) for result in results if end < len(nodes)}
        for node in nodes[start:end]:
            copy = reapplied(node, mapped)
            new[id(node)] = ops.barrier(copy) if id(node) in stored else copy
        outputs = tuple(map(mapped, results))
        slices.append(make_graph(f"{graph.name}_{number}", inputs, outputs, graph.parameters, {}))
        inputs = tuple(Tensor(x.type, Input(f"value{i}")) for i, x in enumerate(results))
    return tuple(slices)


def work(node: Tensor) -> int:
    """The time that a node takes, in operations of products with weights.

    The time of its products, or else _COMPUTED or _COPIED for each element of its result.
    """
    op = op_of(node)
    if op in _VIEWS or node.type.dtype is not DType.F32:
        return 0
    return products(node) or node.type.size * (_COPIED if op in _COPIES else _COMPUTED)


def products(node: Tensor) -> int:
    """The time of the products in a node: two operations a term, and _ATTENTION times in attention.

    For a Fused node: the products of its function.
    """
    origin = node.origin
    if not isinstance(origin, Apply):
        return 0
    if isinstance(origin.op, Fused):
        body = origin.op.inlined_body(tuple(x.type for x in node.inputs), origin.attrs)
        return sum(map(products, body.nodes))
    if origin.op is ops.project:
        return 2 * node.type.size * node.inputs[0].shape[1]
    if origin.op is not ops.dot_general:
        return 0
    (heads, _), (axes, _) = origin.attrs["batch"], origin.attrs["contract"]
    terms = math.prod(node.inputs[0].shape[axis] for axis in axes)
    return 2 * node.type.size * int(terms) * (_ATTENTION if heads else 1)


class _Values:
    """The arguments and nodes of a graph that exist before a node and are read from there on."""

    def __init__(self, graph: Graph, nodes: Sequence[Tensor]) -> None:
        self._graph = graph
        self._end = len(nodes)
        starts = [*(0 for _ in graph.inputs), *range(1, len(nodes) + 1)]
        last = {id(source): at for at, node in enumerate(nodes) for source in node.inputs}
        last |= dict.fromkeys(map(id, graph.outputs), len(nodes))
        # Each value with the first and the last index of a cut that it crosses.
        self._spans = [
            (x, start, last.get(id(x), -1))
            for x, start in zip((*graph.inputs, *nodes), starts, strict=True)
        ]
        changes = [0] * (len(nodes) + 2)
        for x, start, stop in self._spans:
            if start <= stop:
                changes[start] += x.type.nbytes
                changes[stop + 1] -= x.type.nbytes
        self.bytes = list(accumulate(changes))

    def crossing(self, at: int) -> tuple[Tensor, ...]:
        """The values before a node; all arguments before the first one, the results at the end."""
        if at in (0, self._end):
            return self._graph.outputs if at else self._graph.inputs
        return tuple(x for x, start, stop in self._spans if start <= at <= stop)


def _cuts(nodes: Sequence[Tensor], values: _Values, limit: int) -> list[int]:
    """The index of the first node of each slice but the first one: see `sliced`."""
    costs = [work(node) for node in nodes]
    before = [0, *accumulate(costs)]  # operations of the nodes before each one
    cuts: list[int] = []
    start = 0
    while True:
        largest = max(limit, next(filter(None, costs[start:]), 0))
        end = bisect_right(before, before[start] + largest) - 1
        if end == len(nodes):
            return cuts
        first = bisect_left(before, min(before[start] + largest // 2, before[end]))
        start = min(range(first, end + 1), key=lambda at: (values.bytes[at], -at))
        cuts.append(start)
