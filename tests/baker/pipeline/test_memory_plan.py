"""What a traced program takes: held against its types, and against an order's limit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.memory_plan import (
    call_bytes,
    check_fits,
    footprint,
    language_footprint,
    needs_streaming,
    program_memory,
    refining_bytes,
    token_bytes,
    too_large,
)
from hearthd.baker.pipeline.recipe import decode_batches
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder import entry_points
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import fused, ops
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.families.gemma3 import Config, Gemma3
from hearthd.models.program import ProgramOptions
from tests.baker.small_gemma import small_gemma
from tests.conftest import Silent, options_for
from tests.models.families.gemma3.gemma3_cases import TINY
from tests.models.families.test_qwen3moe import CONFIG as EXPERTS
from tests.models.presets import GEMMA3, SMOLLM2

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.program import Program

CONFIG = replace(TINY, layers=3, windows=(4, 4, None))
OPTIONS = ProgramOptions(
    context=256, precision="f32", prefill_tokens=(16,), decode_batches=decode_batches(4)
)


def made(options: ProgramOptions, config: Config = CONFIG) -> Program:
    return entry_points.program(Gemma3(config), options)


def small(precision: str, *, slots: int = 1, chunk: int = 8) -> ProgramOptions:
    return ProgramOptions(
        context=64,
        precision=precision,
        prefill_tokens=(chunk,),
        decode_batches=decode_batches(slots),
    )


def test_every_weight_counts_where_it_is_used() -> None:
    program = made(small("f32", slots=2))
    sizes = {name: tensor_type.nbytes for name, tensor_type in program.parameters.items()}
    matrices = {name for name, tensor_type in program.parameters.items() if tensor_type.rank == 2}
    plan = footprint(program.graphs, program.parameters)
    assert plan.laid_out == sum(sizes[name] for name in matrices)
    assert plan.read == sum(sizes[name] for name in sizes.keys() - matrices)
    # The table is looked up where it lies, and laid out as the head.
    assert plan.looked_up == program.vocab_size * TINY.hidden * 4
    assert plan.calls.keys() == {graph.name for graph in program.graphs}


def test_weights_of_our_own_kernels_are_read_where_they_lie() -> None:
    program = made(small("int8-g32"), replace(GEMMA3["270m"], layers=1, windows=(512,)))
    plan = footprint(program.graphs, program.parameters)
    assert (plan.laid_out, plan.looked_up) == (0, 0)
    assert plan.read == sum(tensor_type.nbytes for tensor_type in program.parameters.values())


def test_only_the_head_has_arrays_that_refine_logits() -> None:
    config = replace(SMOLLM2, layers=1)
    tied, untied = (
        ARCHITECTURES["llama"].program(replace(config, tied=tied), small("int8-g32"))
        for tied in (True, False)
    )
    table = config.vocab_size * config.hidden
    assert refining_bytes(tied) == refining_bytes(untied) == table // 2  # four bits of eight
    everything = sum(type_.nbytes for type_ in tied.parameters.values())
    assert token_bytes(tied) == token_bytes(untied) == everything - table // 2


def test_a_slot_is_its_caches_and_a_step_holds_the_logits() -> None:
    program = made(OPTIONS)
    memory = program_memory(program, OPTIONS.context)
    assert memory.slot == sum(spec.bytes for spec in program.caches)
    assert memory.needed(3) - memory.needed(2) == memory.slot  # both by decode_2
    assert memory.step(4) >= 4 * 4 * TINY.vocab_size


def test_a_call_holds_what_is_read_later() -> None:
    tensor_type = TensorType((10, 10), DType.F32)

    def chain(x: Tensor) -> tuple[Tensor, ...]:
        for _ in range(5):
            x = f.matmul(x, x)
        return (x + 1.0,)

    def wide(x: Tensor) -> tuple[Tensor, ...]:
        parts = [f.matmul(x, x * float(i)) for i in range(5)]
        return (ops.concatenate(*parts, axis=0),)

    # A product and the one that it is made of; the result comes on top. All five, and the result.
    assert call_bytes(trace("chain", chain, {"x": tensor_type})) == 400 + 2 * 400 * 3 // 2
    assert call_bytes(trace("wide", wide, {"x": tensor_type})) == 5 * 400 + 5 * 400 * 3 // 2


def test_the_scores_of_attention_are_counted() -> None:
    def read_later(keys: int) -> Graph:
        cache = TensorType((keys, 64), DType.F16)
        inputs = {
            "query": TensorType((1, 4, 64), DType.F32),
            "key": cache,
            "value": cache,
            "start": TensorType((1,), DType.I32),
        }

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            return (fused.cached_attention(*tensors, keys=keys, scale=0.1) + 1.0,)

        return trace("read_later", function, inputs)

    heads, values = 4, 4 * 64
    for keys in (1600, 3200):
        expected = 4 * values + 4 * (values + heads * keys) * 3 // 2
        assert call_bytes(read_later(keys)) == expected


def test_updates_in_place_take_no_memory() -> None:
    cache, row = TensorType((100, 8), DType.F32), TensorType((1, 8), DType.F32)
    inputs = {"cache": cache, "at": TensorType((1,), DType.I32), "row": row}

    def update(cache: Tensor, at: Tensor, row: Tensor) -> tuple[Tensor, ...]:
        return (ops.scatter(cache, at, row, combine="replace"),)

    assert call_bytes(trace("update", update, inputs, in_place={0: 0})) == 0
    assert call_bytes(trace("update", update, inputs)) == 3200


def test_experts_may_be_larger_than_memory() -> None:
    options = small("int8-g32")
    program = entry_points.program(ARCHITECTURES["qwen3moe"].model(EXPERTS), options)
    weights = language_footprint(program, streamed=True)
    assert weights.experts == sum(
        tensor_type.nbytes
        for name, tensor_type in program.parameters.items()
        if ".mlp.experts." in name
    )
    chosen = weights.experts * EXPERTS.experts_per_token // EXPERTS.experts
    assert weights.token_experts == chosen > 0
    assert weights.expert_arrays == {
        name: EXPERTS.experts for name in program.parameters if ".mlp.experts." in name
    }
    whole = program_memory(program, options.context).needed(1)
    least = program_memory(program, options.context, streamed=True).needed(1)
    assert least == whole - weights.experts + chosen
    fits = {limit: needs_streaming(program, 64, 1, limit) for limit in (least - 1, least, whole)}
    assert list(fits.values()) == [False, True, False]
    # `--precision auto` asks the same.
    refused = {limit: too_large(program, 64, 1, limit) for limit in (least - 1, least, whole)}
    assert [reason is None for reason in refused.values()] == [False, True, True]


def test_a_model_without_experts_must_fit() -> None:
    program = made(small("int8-g32"))
    needed = program_memory(program, 64).needed(1)
    assert not any(needs_streaming(program, 64, 1, needed - n) for n in (0, 1))


@pytest.mark.nightly
def test_what_fits_is_baked_and_a_byte_less_is_refused_with_advice() -> None:
    program = made(OPTIONS)
    memory = program_memory(program, OPTIONS.context)
    check_fits(program, OPTIONS, 4, memory.needed(4), made)
    with pytest.raises(
        BakeError, match=r"--max-memory: got .* MB, but 4 slots of 256 tokens in f32 need"
    ) as e:
        check_fits(program, OPTIONS, 4, memory.needed(4) - 1, made)
    said = str(e.value)
    assert memory.formula(4) in said
    assert "; specify --slots 3 or --context 128 or --context 64" in said
    shortest = replace(OPTIONS, context=64)
    least = program_memory(made(shortest), 64).needed(1)
    with pytest.raises(BakeError, match=r"; specify --slots 1 --context 64$"):
        check_fits(program, OPTIONS, 4, least, made)
    more = rf"; specify at least --max-memory {-(-least // 10**6)}M, with --slots 1 --context 64$"
    with pytest.raises(BakeError, match=more):
        check_fits(program, OPTIONS, 4, least - 1, made)


def test_a_smaller_precision_is_advised_where_weights_are_most_of_it() -> None:
    config = replace(GEMMA3["270m"], layers=1, windows=(512,))
    options = small("f32", chunk=16)
    program = made(options, config)
    limit = program_memory(program, OPTIONS.context).needed(1) - 300_000_000
    precisions = "--precision bf16 or --precision int12-g32 or --precision int8-g32"
    with pytest.raises(BakeError, match=f"; specify {precisions}"):
        check_fits(program, options, 1, limit, partial(made, config=config))


def test_a_bake_that_cannot_fit_ends_before_anything_is_compiled(tmp_path: Path) -> None:
    weights, out = small_gemma(tmp_path / "weights"), tmp_path / "out"
    out.mkdir()
    options = options_for(
        out / "bundle", weights=weights, precision="int8-g32", context=64, max_memory=10**6
    )
    with pytest.raises(BakeError, match="4 slots of 64 tokens in int8-g32 need"):
        bake(options, Silent())
    assert not list(out.iterdir())
