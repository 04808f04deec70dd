"""Faults of updates in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import Apply, Graph, Input, Parameter, Tensor, make_graph, op_of
from hearthd.models.dsl.iree_faults.tensor_sets import MOVES, TensorSets
from hearthd.models.dsl.ops.creation import full
from hearthd.models.dsl.ops.indexing import scatter
from hearthd.models.dsl.ops.shape import pad, slice_

if TYPE_CHECKING:
    from collections.abc import Mapping


def updated_argument(output: Tensor, graph: Graph) -> bool:
    """Whether an output may share the storage of an input that a scatter updates.

    The compiler updates an input in place that is a result too, as it is or in another shape, also
    when it is multiplied by one.
    """
    updated = [node.inputs[0] for node in graph.nodes if op_of(node) is scatter]
    if all(op_of(operand) is full for operand in updated):
        return False
    repeated = TensorSets(graph).repeated
    while output.inputs:
        varying = [source for source in output.inputs if id(source) not in repeated]
        if op_of(output) not in MOVES and len(varying) != 1:
            return False
        output = output.inputs[0] if op_of(output) in MOVES else varying[0]
    return isinstance(output.origin, Input | Parameter)


def updated_before_read(node: Tensor, readers: Mapping[int, int]) -> Graph | None:
    """A scatter's graph, on inputs of the same types, which updates a copy of its operand.

    Only where something else reads the operand, or a tensor that it is a view of. The compiler
    updates it in place, also before the other one reads it, or while it does. The copy has a row
    more: one of the same size would be left out.

    readers  how often each tensor is read, by its id
    """
    if not (
        isinstance(node.origin, Apply)
        and node.origin.op is scatter
        and _is_read_elsewhere(node.inputs[0], readers)
    ):
        return None
    inputs = tuple(Tensor(x.type, Input(f"x{i}")) for i, x in enumerate(node.inputs))
    operand, indices, updates = inputs
    copy = pad(operand, padding=((0, 1, 0), *((0, 0, 0) for _ in operand.shape[1:])))
    updated = scatter(copy, indices, updates, **node.origin.attrs)
    result = slice_(updated, bounds=tuple((0, extent, 1) for extent in operand.shape))
    return make_graph("update", inputs, (result,), {}, {})


def _is_read_elsewhere(operand: Tensor, readers: Mapping[int, int]) -> bool:
    """Whether anything but a scatter reads its operand, or a tensor that this is a view of."""
    while readers[id(operand)] == 1 and op_of(operand) in MOVES:
        operand = operand.inputs[0]
    return readers[id(operand)] > 1
