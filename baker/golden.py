"""Golden values: what NumPy computes for a few prompts, kept in the bundle for its self-test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.bundle import Golden, GoldenStep
from server.runtime.base import read_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from server.runtime.base import Reader

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time, in a small village by the sea, there lived an old fisherman who",
)
STEPS = 6
# Logits that are kept of each step.
LARGEST = 8
_SLOT = 0

# The largest difference of a logit between NumPy and a compiled program that rounding explains.
TOLERANCE = {"f32": 2e-3, "bf16": 0.25, "int8-g32": 2e-2}


def golden_values(runtime: Reader, tokenizer: Tokenizer) -> Iterator[Golden]:
    """Each prompt with the largest logits of its greedy continuation, one prompt at a time."""
    for prompt in PROMPTS:
        ids = tuple(tokenizer.encode(prompt).ids)
        yield Golden(prompt=prompt, prompt_ids=ids, steps=tuple(_continue(runtime, ids)))


def _continue(runtime: Reader, ids: tuple[int, ...]) -> Iterator[GoldenStep]:
    logits = read_prompt(runtime, ids, slot=_SLOT)
    for position in range(len(ids), len(ids) + STEPS - 1):
        step = _largest(logits)
        yield step
        logits = runtime.decode([_SLOT], [step.token_ids[0]], [position])[0]
    yield _largest(logits)


def _largest(logits: NDArray[np.float32]) -> GoldenStep:
    best = np.argsort(-logits, kind="stable")[:LARGEST]
    return GoldenStep(
        token_ids=tuple(int(i) for i in best), logits=tuple(float(logits[i]) for i in best)
    )
