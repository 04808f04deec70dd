"""Refuse graphs in which the compiler would overwrite inputs of a running loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.graph import Apply, op_of
from hearthd.models.dsl.ops.control import scan
from hearthd.models.dsl.ops.creation import full
from hearthd.models.dsl.ops.indexing import scatter
from hearthd.models.dsl.ops.record import Loop
from hearthd.models.dsl.types import DslError

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Graph


def refuse_updates_beside_loops(graph: Graph) -> None:
    """Raise DslError for an update in place in a graph with a loop that may read its storage.

    The compiler lets an update take the storage of its operand once no later line reads it, but
    does not have it wait for a loop before, nor for the next turn of the loop that it is in.
    """
    loops = [node for node in graph.nodes if op_of(node) is scan]
    if not loops:
        return
    _refuse_overwriting(graph)
    for node in loops:
        assert isinstance(node.origin, Apply)
        types = tuple(source.type for source in node.inputs)
        loop = scan.lower(types, node.type, node.origin.attrs)
        assert isinstance(loop, Loop)
        body = inlined(loop.body)
        _refuse_overwriting(body)
        refuse_updates_beside_loops(body)


def _refuse_overwriting(graph: Graph) -> None:
    if graph.in_place:
        raise DslError(f"{graph.name}: a function with a loop has no results in place")
    for node in graph.nodes:
        if op_of(node) is scatter and op_of(node.inputs[0]) is not full:
            raise DslError(f"{graph.name}: in a function with a loop, scatter starts from full")
