"""Driving a runtime along a prompt: teacher-forced, free-running, or to make a recording.

Knows the Reader protocol and token ids; what an engine is behind it, and what its logits should
be, it does not know. Everything runs in slot 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from baker.ab.recording import Best, Case
from server.runtime.base import read_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from server.runtime.base import Reader

TOP = 5
_SLOT = 0


class Vocabulary(Protocol):
    """Text to token ids, as a model reads it, and back."""

    def tokenize(self, text: str) -> tuple[int, ...]:
        """The ids of a prompt, with the beginning-of-sequence token in front."""

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of an answer's ids."""


def teacher_forced(runtime: Reader, case: Case, steps: int) -> Iterator[NDArray[np.float32]]:
    """The logits before each of the first `steps` recorded tokens, each f32 (V,).

    Whatever the runtime would have said, the recorded token is read next.
    """
    yield read_prompt(runtime, case.prompt_ids)
    for position, token in enumerate(case.greedy_ids[: steps - 1], start=len(case.prompt_ids)):
        yield runtime.decode([_SLOT], [token], [position])[0]


def free_running(runtime: Reader, prompt_ids: Sequence[int]) -> Iterator[NDArray[np.float32]]:
    """The logits before each token of the runtime's own greedy answer, each f32 (V,). Endless."""
    logits = read_prompt(runtime, prompt_ids)
    position = len(prompt_ids)
    while True:
        yield logits
        logits = runtime.decode([_SLOT], [greedy(logits)], [position])[0]
        position += 1


def record(runtime: Reader, vocabulary: Vocabulary, name: str, prompt: str, steps: int) -> Case:
    """Answer a prompt greedily for `steps` tokens, past any end of sequence, and keep the best."""
    prompt_ids = vocabulary.tokenize(prompt)
    answer = free_running(runtime, prompt_ids)
    best = tuple(_best(next(answer)) for _ in range(steps))
    greedy_ids = tuple(row.token_ids[0] for row in best)
    return Case(
        name=name,
        prompt=prompt,
        prompt_ids=prompt_ids,
        greedy_ids=greedy_ids,
        text=vocabulary.detokenize(greedy_ids),
        best=best,
    )


def greedy(logits: NDArray[np.float32]) -> int:
    """The most probable token; of equals the smallest id."""
    return int(np.argmax(logits))


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Natural-log probabilities f64 (V,) of logits (V,); all NaN if a logit is NaN or +inf."""
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf: the answer is the NaN that is promised
        shifted = wide - wide.max()
    logprobs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return logprobs


def _best(logits: NDArray[np.float32]) -> Best:
    order = np.argsort(-logits, kind="stable")[:TOP]
    logprobs = log_softmax(logits)
    return Best(
        token_ids=tuple(int(token) for token in order),
        logprobs=tuple(float(logprobs[token]) for token in order),
    )
