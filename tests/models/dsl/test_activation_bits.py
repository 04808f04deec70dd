"""`activations="int8"`: which products of a traced program round activations to eight bits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hearthd.models.dsl.fused import (
    linear_quantized,
    linear_refined,
    routed_linear_quantized,
)
from hearthd.models.dsl.graph import Apply
from tests.models.test_optimized import OPTIONS, program_of


@pytest.mark.parametrize(
    ("architecture", "storages"),
    [
        ("llama", {}),  # a head in two parts
        ("qwen3moe", {}),
        ("gemma3", {"embed_tokens.weight": "int6-g16-s256"}),
        ("gemma3", {"embed_tokens.weight": "int5-g32"}),  # computed whole
        ("gemma2", {"embed_tokens.weight": "int12-g32"}),
    ],
)
def test_all_products_but_those_of_the_head_round_activations_to_eight_bits(
    architecture: str, storages: dict[str, str]
) -> None:
    options = replace(OPTIONS, decode_batches=(1,), storages=storages, activations="int8")
    program = program_of(architecture, options)
    tables = {
        id(array)
        for weight in program.weights
        if any(name.startswith(("embed_tokens", "lm_head")) for name in weight.sources)
        for array in weight.parameters.values()
    }
    bits: dict[bool, set[int]] = {False: set(), True: set()}
    for graph in program.graphs:
        for node in graph.nodes:
            assert isinstance(node.origin, Apply)
            if node.origin.op in (linear_quantized, linear_refined, routed_linear_quantized):
                is_head = any(id(source) in tables for source in node.inputs)
                bits[is_head].add(node.origin.attrs.get("activation_bits", 16))
    assert bits == {False: {8}, True: {16}}
