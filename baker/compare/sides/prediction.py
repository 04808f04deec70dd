"""What a side expects of the next token: all of the vocabulary, or the best few of it.

Knows probabilities and token ids; not where they come from, and not what they are compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class NotANumber(Exception):
    """A side gave a logit that is not finite; the message says how many."""


@dataclass(frozen=True)
class Full:
    """The logits of every token, f32 (V,). Raises NotANumber if one is not finite."""

    logits: NDArray[np.float32]

    def __post_init__(self) -> None:
        bad = self.logits.size - int(np.count_nonzero(np.isfinite(self.logits)))
        if bad:
            raise NotANumber(f"{bad} of {self.logits.size} logits are not finite numbers")

    @property
    def logprobs(self) -> NDArray[np.float64]:
        """Natural-log probabilities, f64 (V,)."""
        return self._softmax[0]

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The same, not as logarithms, f64 (V,)."""
        return self._softmax[1]

    @cached_property
    def _softmax(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return softmax(self.logits)

    @cached_property
    def greedy(self) -> int:
        """The most probable token; of equals the smallest id."""
        return int(np.argmax(self.logits))

    def best(self, count: int) -> tuple[int, ...]:
        """The ids of the `count` most probable tokens, best first; of equals the smallest id."""
        count = min(count, self.logits.size)
        least = np.partition(self.logits, -count)[-count]
        found = np.flatnonzero(self.logits >= least)
        order = np.argsort(-self.logits[found], kind="stable")[:count]
        return tuple(int(token) for token in found[order])

    def logprob(self, token: int) -> float | None:
        """The natural-log probability of a token, if there is such a token."""
        return float(self.logprobs[token]) if 0 <= token < self.logits.size else None


@dataclass(frozen=True)
class Top:
    """The best tokens and their natural-log probabilities, best first; nothing of the others.

    A negative id is a token that nobody else knows.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    @property
    def greedy(self) -> int:
        """The most probable token."""
        return self.token_ids[0]

    def best(self, count: int) -> tuple[int, ...]:
        """The ids of up to `count` most probable tokens, best first."""
        return self.token_ids[:count]

    def logprob(self, token: int) -> float | None:
        """The natural-log probability of a token, if it is one of the best."""
        return self._known.get(token)

    @cached_property
    def _known(self) -> dict[int, float]:
        return dict(zip(self.token_ids, self.logprobs, strict=True))


Prediction: TypeAlias = Full | Top


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
    """The tokens whose probability both know; None if that is the whole vocabulary."""
    if isinstance(a, Top):
        return [token for token in a.token_ids if b.logprob(token) is not None]
    return None if isinstance(b, Full) else common_tokens(b, a)
