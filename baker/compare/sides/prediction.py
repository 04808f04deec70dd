"""A prediction of the next token: probabilities of the whole vocabulary, or of the top tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class NotFinitePrediction(Exception):
    """Logits are not finite; the message says how many."""


@dataclass(frozen=True)
class FullPrediction:
    """The logits of every token, f32 (V,). Raises NotANumber if one is not finite."""

    logits: NDArray[np.float32]

    def __post_init__(self) -> None:
        bad = self.logits.size - int(np.count_nonzero(np.isfinite(self.logits)))
        if bad:
            raise NotFinitePrediction(f"{bad} of {self.logits.size} logits are not finite")

    @property
    def logprobs(self) -> NDArray[np.float64]:
        """Natural-log probabilities, f64 (V,)."""
        return self._softmax[0]

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Probabilities, f64 (V,)."""
        return self._softmax[1]

    @cached_property
    def _softmax(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return softmax(self.logits)

    @cached_property
    def greedy(self) -> int:
        """The most probable token; the smallest id if several are equal."""
        return int(np.argmax(self.logits))

    def best(self, count: int) -> tuple[int, ...]:
        """The `count` most probable token ids, best first; equal ones by id."""
        count = min(count, self.logits.size)
        smallest = np.partition(self.logits, -count)[-count]
        candidates = np.flatnonzero(self.logits >= smallest)
        order = np.argsort(-self.logits[candidates], kind="stable")[:count]
        return tuple(int(token) for token in candidates[order])

    def logprob(self, token: int) -> float | None:
        """The natural-log probability of a token; None if the vocabulary does not have it."""
        return float(self.logprobs[token]) if 0 <= token < self.logits.size else None


@dataclass(frozen=True)
class TopPrediction:
    """The most probable tokens and their natural-log probabilities, best first.

    A negative id is a token that is not in the vocabulary of the other side.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    @property
    def greedy(self) -> int:
        """The most probable token."""
        return self.token_ids[0]

    def best(self, count: int) -> tuple[int, ...]:
        """At most `count` of the most probable token ids, best first."""
        return self.token_ids[:count]

    def logprob(self, token: int) -> float | None:
        """The natural-log probability of a token; None if it is not among the top tokens."""
        return self._known.get(token)

    @cached_property
    def _known(self) -> dict[int, float]:
        return dict(zip(self.token_ids, self.logprobs, strict=True))


Prediction: TypeAlias = FullPrediction | TopPrediction


def softmax(logits: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Natural-log probabilities f64 (V,) of finite logits (V,), and probabilities f64 (V,)."""
    logprobs = logits.astype(np.float64)
    logprobs -= logprobs.max()
    probabilities = np.exp(logprobs)
    total = probabilities.sum()
    logprobs -= np.log(total)
    probabilities /= total
    return logprobs, probabilities


def common_tokens(a: Prediction, b: Prediction) -> Sequence[int] | None:
    """The tokens whose probability is known on both sides; None for the whole vocabulary."""
    if isinstance(a, TopPrediction):
        return [token for token in a.token_ids if b.logprob(token) is not None]
    return None if isinstance(b, FullPrediction) else common_tokens(b, a)
