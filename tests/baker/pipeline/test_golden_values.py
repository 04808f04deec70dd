"""Golden values: of three prompts at once they are what a plain forward pass gives of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from baker.reference.golden_values import (
    PROMPTS,
    STEPS,
    TOP_COUNT,
    golden_rows,
    golden_values,
    prompt_ids,
)
from baker.reference.numpy_runtime import NumpyRuntime
from examples.train_tiny_gemma import tokenizer
from models.bundle import Golden
from models.decoder import entry_points
from models.gemma3 import Gemma3
from models.program import model_weights
from tests.models.families.gemma3.gemma3_cases import OPTIONS, TINY
from tests.models.families.gemma3.gemma3_reference import forward
from tests.models.numpy_device import random_weights

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


def test_golden_rows_are_those_of_the_second_layer() -> None:
    config, options = (
        replace(CONFIG, layers=2, windows=(4, None)),
        replace(OPTIONS, decode_batches=(1,)),
    )
    program = entry_points.program(Gemma3(config), replace(options, kv_cache="int8"))
    runtime = NumpyRuntime(program, random_weights(program), context=options.context, slots=1)
    runtime.decode([0], [5], [0])
    (row,) = golden_rows(runtime, program.caches, [Golden(prompt="", prompt_ids=(5,), steps=())])
    assert (row.prompt, row.offset) == (0, 2 * (program.caches[0].width + 4 * config.kv_heads))
    key, value, key_scale, value_scale = runtime.row(0, 0)[4:8]
    assert [spec.name.removeprefix("layers.1.") for spec in program.caches[4:8]] == [
        "key",
        "value",
        "key_scale",
        "value_scale",
    ]
    assert row.integers == (*key, *value)
    assert row.scales == (*key_scale, *value_scale)
    others = [replace(spec, dtype="f16") for spec in program.caches]
    assert golden_rows(runtime, others, ()) == ()
