"""The rule that products of few rows add the terms of adapters at once: see `linear_adapted`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.fused.adapted_products import linear_adapted
from hearthd.models.dsl.fused.adapter_products import lora_down, lora_up
from hearthd.models.dsl.fused.quantized_products import linear_quantized
from hearthd.models.dsl.graph import Apply, Graph, Tensor, op_of, rebuilt
from hearthd.models.dsl.types import DType, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.dsl.ops.record import Attrs

__all__ = ["with_adapted_products"]


def with_adapted_products(
    graph: Graph, parameters: Mapping[str, Tensor]
) -> tuple[Graph, Counter[str]]:
    """The graph after the rule, and how often it was applied. Other shapes stay as they are."""
    soon = _next_factors(graph)
    if not soon:
        return graph, Counter()
    readers = Counter(id(source) for node in graph.nodes for source in node.inputs)
    counts: Counter[str] = Counter()

    def replace(node: Tensor, mapped: Callable[[Tensor], Tensor]) -> Tensor | None:
        if id(node) not in soon:
            return None
        product, *adapters = node.inputs
        is_shared = readers[id(product)] > 1
        if op_of(product) is ops.reshape and product.shape == product.inputs[0].shape:
            (product,) = product.inputs
            is_shared |= readers[id(product)] > 1
        is_small = adapters[3].dtype is DType.I8
        if is_shared or not is_small or op_of(product) is not linear_quantized:
            return None
        x, *arrays = product.inputs
        inputs = (x, *adapters, soon[id(node)], *arrays)
        attrs = {**_attrs(product), **_attrs(node)}
        try:
            replacement = linear_adapted(*map(mapped, inputs), **attrs)
        except Unsupported:
            return None
        counts["adapted"] += 1
        return replacement

    return rebuilt(graph, replace, parameters), counts


def _next_factors(graph: Graph) -> dict[int, Tensor]:
    """By the id of a `lora_up`, the factors of the next `lora_down`; at the end, of the first."""
    downs = [node for node in graph.nodes if op_of(node) is lora_down]
    factors: dict[int, Tensor] = {}
    down = downs[0] if downs else None
    for node in reversed(graph.nodes):
        if op_of(node) is lora_down:
            down = node
        elif op_of(node) is lora_up and down is not None:
            factors[id(node)] = down.inputs[2]
    return factors


def _attrs(node: Tensor) -> Attrs:
    assert isinstance(node.origin, Apply)
    return node.origin.attrs
