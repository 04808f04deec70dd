"""Reverse mode: from a graph to the tensors that hold its gradients, in the graph's own ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.dsl.graph import Apply, Graph, Tensor
from models.dsl.ops import add, full_like
from models.dsl.ops.record import NoGradient
from models.dsl.types import DslError, NoGradientError

if TYPE_CHECKING:
    from collections.abc import Sequence


def gradients(
    graph: Graph, upstream: Sequence[Tensor], wanted: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The vector-Jacobian product of a graph: one gradient for each wanted input or parameter.

    `upstream` holds one tensor for each output, of its type: the gradient that arrives there. A
    wanted tensor that no output depends on has the gradient zero. Raises NoGradientError, naming
    the op and its reason, when a path to a wanted tensor leads through an op without a gradient.
    """
    arrived: dict[int, Tensor] = {}
    for output, gradient in zip(graph.outputs, upstream, strict=True):
        if gradient.type != output.type:
            raise DslError(f"{graph.name}: {output} got a gradient of type {gradient.type}")
        _arrive(arrived, output, gradient)
    on_path = _depends_on(graph, wanted)
    for node in reversed(graph.nodes):
        if id(node) not in arrived or id(node) not in on_path:
            continue
        assert isinstance(node.origin, Apply)
        op = node.origin.op
        if isinstance(op.vjp, NoGradient):
            raise NoGradientError(f"{op.name} has no gradient: {op.vjp.reason}")
        parts = op.vjp(arrived[id(node)], node.inputs, node, node.origin.attrs)
        for source, part in zip(node.inputs, parts, strict=True):
            if part is not None and id(source) in on_path:
                _arrive(arrived, source, part)
    return tuple(
        arrived[id(tensor)] if id(tensor) in arrived else full_like(tensor, 0.0)
        for tensor in wanted
    )


def _arrive(arrived: dict[int, Tensor], at: Tensor, gradient: Tensor) -> None:
    """Gradients that reach a tensor by several ways add up."""
    if gradient.type != at.type:
        raise DslError(f"a vjp gave {gradient.type} for an input of type {at.type}")
    before = arrived.get(id(at))
    arrived[id(at)] = gradient if before is None else add(before, gradient)


def _depends_on(graph: Graph, wanted: Sequence[Tensor]) -> set[int]:
    """The tensors whose value can change when a wanted tensor does."""
    found = {id(tensor) for tensor in wanted}
    for node in graph.nodes:
        if any(id(source) in found for source in node.inputs):
            found.add(id(node))
    return found
