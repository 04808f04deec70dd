"""Reverse mode: from a graph to the tensors that hold its gradients, in the graph's own ops.

A gradient is a tensor of the trace that it is asked in, like any other: it is evaluated, compiled
and differentiated again as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import Apply, Graph, Tensor, in_order
from hearthd.models.dsl.ops import add, convert, full_like
from hearthd.models.dsl.ops.elementwise import unrounded
from hearthd.models.dsl.ops.record import NoGradient
from hearthd.models.dsl.types import DslError, NoGradientError

if TYPE_CHECKING:
    from collections.abc import Sequence


def gradients(
    graph: Graph, upstream: Sequence[Tensor], with_respect_to: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The vector-Jacobian product of a graph: one gradient for each wanted input or parameter.

    `upstream` holds one tensor for each output, of its type: the gradient that arrives there. A
    wanted tensor that no output depends on has the gradient zero. Raises NoGradientError, naming
    the op and its reason, when a path to a wanted tensor leads through an op without a gradient.
    """
    for output, gradient in zip(graph.outputs, upstream, strict=True):
        if gradient.type != output.type:
            raise DslError(f"{graph.name}: {output} got a gradient of type {gradient.type}")
    return vector_jacobian_product(graph.nodes, graph.outputs, upstream, with_respect_to)


def pull_back(
    output: Tensor, upstream: Tensor, inputs: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The gradients at the inputs that an output is computed from: None for an integer input.

    The walk back ends at the inputs, whatever those are computed from.
    """
    between = in_order((output,), tuple(inputs))
    nodes = tuple(tensor for tensor in between if isinstance(tensor.origin, Apply))
    floats = [tensor for tensor in inputs if tensor.dtype.is_float]
    float_gradients = iter(vector_jacobian_product(nodes, (output,), (upstream,), floats))
    return tuple(next(float_gradients) if tensor.dtype.is_float else None for tensor in inputs)


def vector_jacobian_product(
    nodes: Sequence[Tensor],
    outputs: Sequence[Tensor],
    upstream: Sequence[Tensor],
    with_respect_to: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """The gradients at the wanted tensors, for those that arrive at the outputs.

    `nodes` are the applied ops that lead to the outputs, each after its inputs.
    """
    arrived: dict[int, Tensor] = {}
    for output, gradient in zip(outputs, upstream, strict=True):
        _arrive(arrived, output, gradient)
    on_path = _depends_on(nodes, with_respect_to)
    for node in reversed(nodes):
        if id(node) not in arrived or not any(id(source) in on_path for source in node.inputs):
            continue
        assert isinstance(node.origin, Apply)
        op = node.origin.op
        if isinstance(op.vjp, NoGradient):
            raise NoGradientError(f"{op.name} has no gradient: {op.vjp.reason}")
        parts = op.vjp(arrived[id(node)], node.inputs, node, node.origin.attrs)
        for source, input_gradient in zip(node.inputs, parts, strict=True):
            if input_gradient is not None and id(source) in on_path:
                _arrive(arrived, source, input_gradient)
    return tuple(
        arrived[id(tensor)] if id(tensor) in arrived else full_like(tensor, 0.0)
        for tensor in with_respect_to
    )


def _arrive(arrived: dict[int, Tensor], at: Tensor, gradient: Tensor) -> None:
    """Gradients that reach a tensor by several ways add up."""
    if gradient.type != at.type:
        raise DslError(f"a vjp gave {gradient.type} for an input of type {at.type}")
    before = arrived.get(id(at))
    arrived[id(at)] = gradient if before is None else _sum(before, gradient)


def _sum(x: Tensor, y: Tensor) -> Tensor:
    """x + y, rounded once where both are rounded from one wider dtype."""
    pair = unrounded(x), unrounded(y)
    if x in pair or y in pair or pair[0].dtype is not pair[1].dtype:
        return add(x, y)
    return convert(add(*pair), dtype=x.dtype)


def _depends_on(nodes: Sequence[Tensor], with_respect_to: Sequence[Tensor]) -> set[int]:
    """The tensors whose value can change when a wanted tensor does."""
    dependent = {id(tensor) for tensor in with_respect_to}
    for node in nodes:
        if any(id(source) in dependent for source in node.inputs):
            dependent.add(id(node))
    return dependent
