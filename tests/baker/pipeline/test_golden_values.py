"""Golden values: of three prompts at once they are what a plain forward pass gives of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from examples.train_tiny_gemma import tokenizer
from hearthd.baker.parameters.irpa import ArchiveWriter, open_archive
from hearthd.baker.reference.golden_values import (
    PROMPTS,
    STATE_VALUES,
    STEPS,
    TOP_COUNT,
    first_routed,
    golden_rows,
    golden_states,
    golden_values,
    prompt_ids,
    row_after_experts,
)
from hearthd.baker.reference.numpy_runtime import NumpyRuntime, PassingParameters, slightly_changed
from hearthd.bundle import MIN_CONTEXT, Golden, GoldenStep
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder import entry_points
from hearthd.models.families.gemma3 import Gemma3
from hearthd.runtime.checks.row_difference import ROW_TOLERANCE
from tests.by_day import first_by_day
from tests.models.families.gemma3.gemma3_cases import OPTIONS, TINY
from tests.models.families.gemma3.gemma3_reference import forward
from tests.models.families.test_slots import EXTRA as RECURRENT_EXTRA
from tests.models.families.test_slots import OPTIONS as RECURRENT_OPTIONS
from tests.models.families.test_slots import SHAPE as RECURRENT_SHAPE
from tests.models.numpy_device import model_weights, random_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hearthd.bundle import Activations, GoldenRow
    from hearthd.models.precision import KvCache

CONFIG = replace(TINY, vocab_size=tokenizer().get_vocab_size())


@pytest.mark.parametrize("batches", [(1,), (1, len(PROMPTS))])
def test_golden_values_are_those_of_a_plain_forward_pass(batches: tuple[int, ...]) -> None:
    ids = prompt_ids(tokenizer())
    room = max(map(len, ids)) + STEPS
    options = replace(OPTIONS, context=room, decode_batches=batches)
    program = entry_points.program(Gemma3(CONFIG), options)
    weights = random_weights(program)
    named = model_weights(program.weights, weights)
    runtime = NumpyRuntime(program, weights, context=room, slots=len(ids))
    golden = golden_values(runtime, ids)
    assert [one.prompt for one in golden] == list(PROMPTS)
    for one, tokens in zip(golden, ids, strict=True):
        assert one.prompt_ids == tokens
        assert len(one.steps) == STEPS
        continued = [*tokens, *(step.token_ids[0] for step in one.steps[:-1])]
        rows = forward(CONFIG, named, continued)[len(tokens) - 1 :]
        for step, row in zip(one.steps, rows, strict=True):
            assert list(step.token_ids) == list(np.argsort(-row)[:TOP_COUNT])
            np.testing.assert_allclose(step.logits, np.sort(row)[: -TOP_COUNT - 1 : -1], atol=1e-4)


def golden_row(
    layer: int, kv_cache: KvCache, activations: Activations = "int16"
) -> tuple[GoldenRow, list[NDArray[Any]]]:
    """The golden row of one token, which is in `layer`, and the caches of its position there."""
    config = replace(CONFIG, layers=2, windows=(4, None), head_dim=64)
    options = replace(OPTIONS, decode_batches=(1,), kv_cache=kv_cache)
    program = entry_points.program(Gemma3(config), options)
    runtime = NumpyRuntime(program, random_weights(program), context=options.context, slots=1)
    runtime.decode([0], [5], [0])
    golden = [Golden(prompt="", prompt_ids=(5,), steps=())]
    (row,) = golden_rows(runtime, program.caches, golden, activations)
    saved = runtime.row(0, 0)
    per_layer = len(saved) // config.layers
    assert row.prompt == 0
    assert row.offset == sum(part.nbytes for part in saved[: layer * per_layer])
    return row, saved[layer * per_layer :][:per_layer]


def test_golden_prompts_fit_the_shortest_context_where_each_byte_is_a_token() -> None:
    letters = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(letters, []))
    tokenizer.pre_tokenizer = ByteLevel()
    assert max(map(len, PROMPTS)) > MIN_CONTEXT
    assert all(0 < len(ids) <= MIN_CONTEXT - 2 * STEPS for ids in prompt_ids(tokenizer))


def test_golden_rows_of_int8_caches_are_those_of_the_second_layer() -> None:
    row, (key, value, key_scale, value_scale) = golden_row(1, "int8")
    assert row.integers == (*key, *value)
    assert row.scales == (*key_scale, *value_scale)


def test_golden_rows_of_int4_caches_are_those_of_the_second_layer() -> None:
    row, (key, value, key_scale, value_scale) = golden_row(1, "int4")
    assert (row.dtype, row.scales) == ("i4", (*key_scale, *value_scale))
    integers = np.array(row.integers).reshape(2, -1)
    assert (np.abs(integers).max(axis=1) == [32, 8]).all()
    # The lower four bits of the first column of a group, and of the one that shares its byte.
    assert (integers[0, ::32] & 15 == key[::24] & 15).all()
    assert (integers[1, 16::32] == value[::16] >> 4).all()


def test_golden_rows_of_f16_caches_are_those_of_the_second_layer() -> None:
    row, (key, value) = golden_row(1, "f16")
    assert row.dtype == "f16"
    assert row.scales == (np.abs(key).max() / 32767, np.abs(value).max() / 32767)
    values = np.array(row.integers).reshape(2, -1) * np.array(row.scales)[:, np.newaxis]
    np.testing.assert_allclose(values, [key, value], atol=max(row.scales) / 2)


@pytest.mark.parametrize("kv_cache", ["int8", "f16"])
def test_golden_rows_with_int8_activations_are_those_of_the_first_layer(kv_cache: KvCache) -> None:
    row, (key, *_) = golden_row(0, kv_cache, "int8")
    keys = np.array(row.integers[: key.size]) * (row.scales[0] if kv_cache == "f16" else 1)
    np.testing.assert_allclose(keys, key, atol=row.scales[0] / 2)


@pytest.mark.parametrize(("change", "present"), [(1e-6, True), (1.0, False)])
def test_a_row_after_experts_is_golden_unless_a_rounding_changes_it(
    change: float, present: bool
) -> None:
    """By more than a step: then the router has chosen other experts."""
    config = replace(CONFIG, layers=2, windows=(4, None), head_dim=64)
    options = replace(OPTIONS, decode_batches=(1,), kv_cache="f16")
    program = entry_points.program(Gemma3(config), options)
    weights = random_weights(program)
    rng = np.random.default_rng(0)
    others = {
        name: (array * (1 + change * rng.standard_normal(array.shape))).astype(array.dtype)
        for name, array in weights.items()
    }
    runtime, changed = (
        NumpyRuntime(program, each, context=options.context, slots=1) for each in (weights, others)
    )
    for each in (runtime, changed):
        each.decode([0], [5], [0])
    case = Golden(prompt="", prompt_ids=(5,), steps=())
    rows = row_after_experts(runtime, changed, program.caches, case, 0)
    assert bool(rows) == present
    if present:
        (same,) = golden_rows(runtime, program.caches, [case], "int16")
        assert rows == (replace(same, tolerance=ROW_TOLERANCE["f16"]),)
    assert row_after_experts(runtime, runtime, program.caches, case, 1) == ()


def test_the_first_layer_with_experts_is_found() -> None:
    described = {
        "model_type": "qwen3_moe", "num_hidden_layers": 3, "hidden_size": 32,
        "intermediate_size": 32, "vocab_size": 64,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [0],
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "norm_topk_prob": True,
    }  # fmt: skip
    family = ARCHITECTURES["qwen3moe"]
    assert first_routed(family.model(family.from_hugging_face(described)).parameters()) == 1
    assert first_routed(Gemma3(CONFIG).parameters()) is None


def test_caches_of_f32_have_no_golden_rows() -> None:
    program = entry_points.program(Gemma3(CONFIG), OPTIONS)
    runtime = NumpyRuntime(program, random_weights(program), context=OPTIONS.context, slots=1)
    runtime.decode([0], [5], [0])
    golden = [Golden(prompt="", prompt_ids=(5,), steps=())]
    assert golden_rows(runtime, program.caches, golden, "int16") == ()


@pytest.mark.parametrize("count", first_by_day(range(8, 14), 2))  # more than the rows of a ring
def test_golden_states_are_those_after_the_continuation_however_it_was_read(count: int) -> None:
    family = ARCHITECTURES["qwen35"]
    config = family.config(**RECURRENT_SHAPE, **RECURRENT_EXTRA["qwen35"])
    program = family.program(config, RECURRENT_OPTIONS)
    tokens, steps = tuple(range(count - 3)), (GoldenStep(token_ids=(3,), logits=(0.0,)),) * 4
    continued = [*tokens, 3, 3, 3]
    golden = [Golden(prompt="", prompt_ids=tokens, steps=steps)]
    states = []
    for prefilled in (0, 3, count - 4):
        runtime = NumpyRuntime(program, random_weights(program), context=40, slots=1)
        for start in range(0, prefilled, 8):
            runtime.prefill(0, continued[start : min(start + 8, prefilled)], start)
        for position in range(prefilled, len(continued)):
            runtime.decode([0], [continued[position]], [position])
        states.append(golden_states(runtime, program.caches, golden))
    first, *others = states
    assert [state.offset for state in first] == [0, program.caches[0].row_bytes]
    assert all(1 < len(state.values) <= STATE_VALUES for state in first)
    assert all(np.abs(state.values).max() > 0 for state in first)
    for other in others:
        for state, same in zip(first, other, strict=True):
            np.testing.assert_allclose(state.values, same.values, atol=1e-5)


def test_models_without_states_have_no_golden_states() -> None:
    program = entry_points.program(Gemma3(CONFIG), OPTIONS)
    runtime = NumpyRuntime(program, random_weights(program), context=OPTIONS.context, slots=1)
    assert golden_states(runtime, program.caches, []) == ()


def test_slightly_changed_parameters_differ_in_their_vectors_of_f32() -> None:
    vector, matrix = np.ones(1000, np.float32), np.ones((10, 10), np.float32)
    half = np.ones(5, np.float16)
    changed = slightly_changed({"vector": vector, "matrix": matrix, "half": half})
    assert changed["matrix"] is matrix
    assert changed["half"] is half
    assert 0.5e-6 < np.std(changed["vector"] - 1.0) < 2e-6
    assert changed["vector"].dtype == np.float32


def test_mapped_parameters_leave_the_memory_of_the_process(tmp_path: Path) -> None:
    size = 8 << 20
    with ArchiveWriter(tmp_path / "a", {str(i): size for i in range(4)}) as archive:
        for i in range(4):
            archive.write(str(i), np.full(size, i, np.uint8))
    arrays = open_archive(tmp_path / "a")

    def mapped() -> int:
        text = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(text.partition("RssFile:")[2].split()[0]) << 10

    before = mapped()

    def growth(parameters: Mapping[str, NDArray[np.uint8]]) -> int:
        most = 0
        for _ in range(2):
            for name in parameters:
                assert (parameters[name] == int(name)).all()
                most = max(most, mapped() - before)
        return most

    limited = growth(PassingParameters(arrays, 2 * size))
    assert limited < 3 * size < growth(arrays)
