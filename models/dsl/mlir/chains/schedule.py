"""The chains and compiled ops of a graph in the order in which a program runs them."""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from hearthd.models.dsl.mlir.chains.addresses import ChainDispatch
from hearthd.models.dsl.mlir.chains.segments import chain_dispatches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.models.dsl.graph import Graph, Tensor

Item: TypeAlias = "ChainDispatch | Tensor"


def schedule(graph: Graph) -> list[Item]:
    """The nodes of an inlined graph, each after its inputs, some of them in chains.

    Views that only chains read are left out.
    """
    chains = {
        id(node): dispatch for dispatch in chain_dispatches(graph) for node, _ in dispatch.results
    }
    position = {id(node): i for i, node in enumerate(graph.nodes)}
    scheduled: dict[int, Item] = {}
    inputs: dict[int, set[int]] = {}
    needed = list(graph.outputs)
    while needed:
        tensor = needed.pop()
        item = chains.get(id(tensor), tensor)
        if id(tensor) not in position or id(item) in scheduled:
            continue
        scheduled[id(item)] = item
        sources = [source for source in item.inputs if id(source) in position]
        inputs[id(item)] = {id(chains.get(id(source), source)) for source in sources}
        needed += sources

    def first(item: Item) -> int:
        nodes = [node for node, _ in item.results] if isinstance(item, ChainDispatch) else [item]
        return min(position[id(node)] for node in nodes)

    positions = {key: first(item) for key, item in scheduled.items()}
    return [scheduled[key] for key in _ordered(inputs, positions)]


def _ordered(inputs: Mapping[int, set[int]], positions: Mapping[int, int]) -> list[int]:
    """Each key after its inputs, and otherwise by its position."""
    readers: dict[int, list[int]] = defaultdict(list)
    for key, sources in inputs.items():
        for source in sources:
            readers[source].append(key)
    missing = {key: len(sources) for key, sources in inputs.items()}
    ready = [(positions[key], key) for key, count in missing.items() if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, key = heapq.heappop(ready)
        ordered.append(key)
        for reader in readers[key]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (positions[reader], reader))
    return ordered
