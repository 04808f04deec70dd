"""Gradients that compute values again: the same results, and fewer bytes that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.pipeline.memory_plan import call_bytes
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.next_token_loss import loss_graph
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Graph, make_graph
from hearthd.models.lora.training import Lora, adapted, gradient_graph
from tests.models.compiled import compiled_fixture
from tests.models.lora.lora_cases import CASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.models.compiled import Compiled


def gradients(name: str, *, recompute: bool) -> Graph:
    """The loss and gradients of a case, on its batch, its adapters, then its weights."""
    case = CASES[name]
    graph = gradient_graph(case.graph, case.adapters, f"{name}_{recompute}", recompute=recompute)
    inputs = (*graph.inputs, *case.parameters.values())
    return make_graph(graph.name, inputs, graph.outputs, {}, {})


def graphs() -> Iterator[Graph]:
    for recompute in (False, True):
        yield gradients("llama", recompute=recompute)


compiled = compiled_fixture(graphs)


@pytest.mark.parametrize("name", CASES)
def test_gradients_have_the_same_bits(name: str) -> None:
    case = CASES[name]
    inputs = [*case.batch(0), *case.initial().values(), *case.weights().values()]
    kept, again = (gradients(name, recompute=recompute) for recompute in (False, True))
    assert len(again.nodes) > len(kept.nodes) * 1.3
    for one, other in zip(evaluate(kept, inputs, {}), evaluate(again, inputs, {}), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.nightly
def test_compiled_gradients_are_equal(compiled: Compiled) -> None:
    case = CASES["llama"]
    inputs = [*case.batch(0), *case.initial().values(), *case.weights().values()]
    kept, again = compiled("llama_False", *inputs), compiled("llama_True", *inputs)
    for one, other in zip(kept, again, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-6 * abs(one).max())


def test_few_bytes_of_a_layer_are_kept() -> None:
    def bytes_of(layers: int, *, recompute: bool) -> int:
        config = DecoderConfig(
            layers=layers, hidden=32, ffn=128, heads=4, kv_heads=2, head_dim=8, max_context=64,
            vocab_size=61, norm_eps=1e-3, rope_base=1000.0, tied=False,
        )  # fmt: skip
        model = ARCHITECTURES["llama"].model(config)
        graph, terms = adapted(
            loss_graph(model, 64),
            model.parameters(),
            Lora(rank=1, alpha=1.0, projections=("v_proj",)),
        )
        return call_bytes(gradient_graph(graph, terms, "gradient", recompute=recompute))

    kept, again = (
        bytes_of(9, recompute=recompute) - bytes_of(5, recompute=recompute)
        for recompute in (False, True)
    )
    assert again < kept / 10
