"""Graphs on stored matrices."""

from __future__ import annotations

import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.graph import Apply, Parameter, Tensor
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.dsl.stored_weights import Weights, store_matrices, stored_graph
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

ROWS, SOME, COLUMNS = 96, 32, 256


@pytest.mark.parametrize("name", STORAGES)
def test_logits_of_the_first_tokens_are_products_with_the_first_rows(name: str) -> None:
    head = Tensor(TensorType((ROWS, COLUMNS), DType.F32), Parameter())

    def logits(x: Tensor, exact: Tensor) -> tuple[Tensor, ...]:
        return (f.approximate_logits(f.narrow(f.times_weight(x, head), 1, 0, SOME), exact),)

    inputs = {"x": TensorType((1, COLUMNS), DType.F32), "exact": TensorType((1,), DType.I32)}
    graph = trace("draft", logits, inputs, parameters={"head.weight": head})
    weights = Weights({"head.weight": head})
    store_matrices([graph], weights, lambda _: STORAGES[name])
    stored, counts = stored_graph(graph, weights, 8)
    assert counts == {"two_part_head": 1}
    assert stored.outputs[0].shape == (1, SOME)
    for node in stored.nodes:
        assert isinstance(node.origin, Apply)
        assert (1, ROWS) not in (node.shape, *(source.shape for source in node.inputs))
