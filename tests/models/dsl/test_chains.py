"""Which kernels run in one dispatch (models/dsl/mlir/chains)."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.fused import cached_attention, gated_silu, latest_inputs, row_before
from hearthd.models.dsl.mlir.chains.addresses import ChainDispatch
from hearthd.models.dsl.mlir.chains.schedule import schedule
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from tests.by_day import each_architecture, first_by_day
from tests.models.test_optimized import OPTIONS, fused_program
from tests.models.tiny_configs import tiny

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.program import Program

# Architectures whose layers have nothing between their products but kernels.
DENSE = ("gemma3", "llama", "qwen3")


def decode(architecture: str, layers: int) -> Graph:
    """A step of two sequences."""
    config = tiny(architecture, layers=layers, windows=(None,) * layers)
    options = replace(OPTIONS, verify_tokens=())
    return entry_point(ARCHITECTURES[architecture].program(config, options), "decode_2")


def entry_point(program: Program, name: str) -> Graph:
    (graph,) = (graph for point, graph in program.entry_points if point.name == name)
    return inlined(graph)


def dispatches(graph: Graph) -> list[ChainDispatch]:
    return [item for item in schedule(graph) if isinstance(item, ChainDispatch)]


@pytest.mark.parametrize("architecture", first_by_day(DENSE))
def test_layers_share_few_chains(architecture: str) -> None:
    """At most one for each layer, and not more different ones when there are more layers."""

    def chains(layers: int) -> list[str]:
        return [one.chain.name for one in dispatches(decode(architecture, layers))]

    eight = chains(8)
    assert 4 <= len(eight) <= 8
    assert len(set(eight)) <= 4
    assert len(set(chains(16))) <= 4


def test_numbers_that_are_equal_as_f32_give_one_chain() -> None:
    """GGUF files have an f32 where config.json has 1e-6: bundles of both are equal."""

    def names(eps: float) -> list[str]:
        config = tiny("llama", norm_eps=eps)
        graph = entry_point(ARCHITECTURES["llama"].program(config, OPTIONS), "decode_2")
        return [one.chain.name for one in dispatches(graph)]

    assert names(1e-6) == names(float(np.float32(1e-6)))
    assert names(1e-6) != names(1e-5)


@pytest.mark.parametrize("architecture", each_architecture())
def test_each_scheduled_item_follows_its_inputs(architecture: str) -> None:
    for _, graph in fused_program(architecture).entry_points:
        graph = inlined(graph)
        known = {id(tensor) for tensor in (*graph.inputs, *graph.parameters.values())}
        for item in schedule(graph):
            assert all(id(source) in known for source in item.inputs)
            results = item.results if isinstance(item, ChainDispatch) else [(item, None)]
            known.update(id(node) for node, _ in results)
        assert all(id(output) in known for output in graph.outputs)


@pytest.mark.parametrize("batch", [1, 8, 16])
def test_a_dispatch_has_at_most_32_tensors(batch: int) -> None:
    """IREE 3.13.0 fails at more when the step is called: binding count 40 > 32."""
    options = replace(OPTIONS, decode_batches=tuple(sorted({1, batch})))
    config = tiny("gemma3", layers=4, windows=(None,) * 4)
    program = ARCHITECTURES["gemma3"].program(config, options)
    found = dispatches(entry_point(program, f"decode_{batch}"))
    assert found
    assert all(len(dispatch.inputs) + 2 <= 32 for dispatch in found)


@pytest.mark.parametrize("architecture", each_architecture())
def test_results_of_a_chain_are_apart_and_scratches_computed_before(architecture: str) -> None:
    for _, graph in fused_program(architecture).entry_points:
        for dispatch in dispatches(inlined(graph)):
            inside = [(address, node.type.size) for node, address in dispatch.results]
            for before, level in pairwise(dispatch.chain.levels):
                computed = {call.result: call.kernel for call in before}
                for call in level:
                    if call.kernel.scratch is not None:
                        assert computed[call.inputs[-1]] == call.kernel.scratch.kernel
                        inside.append((call.inputs[-1], call.kernel.scratch.size))
            spans = sorted(
                (address.offset, address.offset + size)
                for address, size in inside
                if address.argument is None
            )
            ends = [0, *(end for _, end in spans)]
            assert all(end <= start for end, (start, _) in zip(ends, spans, strict=False))
            assert ends[-1] <= dispatch.chain.size


# Changes of configurations that make layers recurrent: all of them, or every second one.
RECURRENT = {
    "qwen35": lambda layers: {"attends": (False, True) * (layers // 2)},
    "granitehybrid": lambda layers: {"attends": (False,) * layers},
    "nemotron_h": lambda layers: {"kinds": ("mamba", "mlp") * (layers // 2)},
}


@functools.cache
def recurrent_program(architecture: str, layers: int) -> Program:
    config = tiny(architecture, layers=layers, **RECURRENT[architecture](layers))
    return ARCHITECTURES[architecture].program(config, OPTIONS)


# Entry points, and the largest number of chains in a layer: a batch reads the states of two slots.
POINTS = [("decode_1", 1), ("decode_2", 2), ("verify_4", 1)]


@pytest.mark.parametrize(("point", "chains_of_layer"), POINTS)
@pytest.mark.parametrize("architecture", first_by_day(RECURRENT))
def test_recurrent_layers_hold_nothing_but_kernels(
    architecture: str, point: str, chains_of_layer: int
) -> None:
    """More layers are more chains of the same kernels: nothing compiled, and no kernel alone."""

    def items(layers: int) -> tuple[int, list[ChainDispatch]]:
        graph = entry_point(recurrent_program(architecture, layers), point)
        chains = dispatches(graph)
        return len(schedule(graph)) - len(chains), chains

    (few, _), (many, chains) = items(2), items(6)
    assert many <= few
    assert len(chains) <= 6 * chains_of_layer
    called = Counter(call.kernel.function for chain in chains for call in chain.chain.calls)
    recurrences = called["ssm_scan"] + called["gated_delta_rule"]
    assert recurrences == called["row_before"] == called["latest_inputs"]


def test_a_tensor_that_others_read_is_not_written_in_a_chain() -> None:
    """What reads the ring comes before the kernel that writes it, or the ring is copied."""

    def written(*, again: bool) -> list[str]:
        def latest(states: Tensor, start: Tensor, x: Tensor, gate: Tensor) -> tuple[Tensor, ...]:
            before = row_before(states, start, ring=3)
            x = gated_silu(x, gate)
            positions = ops.concatenate(start, start, axis=0)
            inside: dict[str, Any] = {"rows": (0, 1), "columns": (0, 32)}
            result = latest_inputs(states, positions, before, x, every=False, **inside)
            return (result, gated_silu(states, states)) if again else (result,)

        types = {
            "states": TensorType((3, 64), DType.F32),
            "start": TensorType((1,), DType.I32),
            "x": TensorType((1, 32), DType.F32),
            "gate": TensorType((1, 32), DType.F32),
        }
        return [
            call.kernel.function
            for dispatch in dispatches(trace("ring", latest, types))
            for call in dispatch.chain.calls
        ]

    assert "latest_inputs" in written(again=False)
    assert "latest_inputs" not in written(again=True)


def test_a_kernel_alone_reads_a_ring_where_it_is() -> None:
    """Its result is too large for a longer chain. The compiler would copy a row of the ring."""
    width = 1 << 20

    def latest(ring: Tensor, positions: Tensor, before: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        inside: dict[str, Any] = {"rows": (0, 1), "columns": (0, width)}
        ring = latest_inputs(ring, positions, before, x, every=False, **inside)
        row = ops.slice_(ring, bounds=((2, 3, 1), (0, width, 1)))
        return ring, gated_silu(row, row)

    row = TensorType((1, width), DType.F32)
    positions = TensorType((2,), DType.I32)
    types = {"ring": row.with_shape(3, width), "positions": positions, "before": row, "x": row}
    (dispatch,) = dispatches(trace("ring", latest, types))
    ((call,),) = dispatch.chain.levels
    assert call.kernel.function == "gated_silu"
    assert call.inputs[0].offset == 2 * width


def attention(keys: int, tokens: int = 1) -> Graph:
    """Attention of new tokens over a cache of as many positions."""
    cache = TensorType((keys, 64), DType.F16)
    inputs = {
        "query": TensorType((tokens, 4, 64), DType.F32),
        "key": cache,
        "value": cache,
        "start": TensorType((1,), DType.I32),
    }
    return trace(
        "attention", lambda *tensors: (cached_attention(*tensors, keys=keys, scale=0.1),), inputs
    )


@pytest.mark.parametrize("keys", [100, 1 << 20])
def test_attention_alone_is_a_chain_of_scores_and_values(keys: int) -> None:
    """However large the scores are: no single dispatch has a scratch."""
    (dispatch,) = dispatches(attention(keys))
    (scores,), (values,) = dispatch.chain.levels
    assert values.kernel.scratch is not None
    assert scores.kernel == values.kernel.scratch.kernel
    assert dispatch.chain.size >= 4 * 64 + 4 * keys


def test_large_scores_do_not_cut_a_chain() -> None:
    def layers(context: int) -> int:
        config = tiny("llama", layers=4, max_context=context)
        program = ARCHITECTURES["llama"].program(config, replace(OPTIONS, context=context))
        return len(dispatches(entry_point(program, "decode_2")))

    assert layers(1 << 18) == layers(64)


@pytest.mark.parametrize("architecture", DENSE)
def test_the_parts_of_a_matrix_that_workgroups_read_cover_it(architecture: str) -> None:
    """A thread that waits fetches them, in every level but the first."""
    for dispatch in dispatches(decode(architecture, 2)):
        chain, fetches = dispatch.chain, 0
        for level in chain.levels:
            for call in level:
                for address, count in zip(call.inputs, call.kernel.private, strict=False):
                    if count:
                        assert address.argument is not None
                        size, parts = chain.inputs[address.argument].size, call.kernel.workgroups
                        assert count * (parts - 1) < size <= count * parts
                        fetches += level is not chain.levels[0]
        assert chain.c_text.count("fetch_until(") == fetches
        assert fetches or len(chain.levels) == 1
