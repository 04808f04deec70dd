"""Golden values: of three prompts at once they are what a plain forward pass gives of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from baker.reference.golden_values import PROMPTS, STEPS, TOP_COUNT, golden_values, prompt_ids
from baker.reference.numpy_runtime import NumpyRuntime
from examples.train_tiny_gemma import tokenizer
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
