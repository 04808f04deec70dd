"""How often drafted tokens are accepted: published figures, and draws with the same acceptance."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The fraction of drafted tokens that were accepted where each step drafts two of them, and five.
# Qwen3.6-27B, Q6_K, drafts of its MTP layer in llama.cpp, 320 tokens of each kind of text, by
# temperature: docs/data/mtp/scenario-sweep.csv of https://github.com/bradrlaw/ai-server (commit
# a3e705c9390ebd094904a2e7d05c72e0e67136a7). llama.cpp accepts a token by Hearth's rule: if it is
# sampled. Its file has nothing between: `Trace` assumes that tokens after the first
# one are equally likely, each if those before it are accepted, and has both fractions.
DRAFTED = (2, 5)
ACCEPTED: Mapping[str, Mapping[float, tuple[float, float]]] = {
    "code": {0.0: (0.945, 0.804), 1.0: (0.945, 0.789)},
    "technical prose": {0.0: (0.739, 0.490), 1.0: (0.673, 0.436)},
    "creative": {0.0: (0.608, 0.314), 1.0: (0.494, 0.251)},
}


@dataclass(frozen=True)
class Trace:
    """The probability that a drafted token is accepted if those before it are.

    first  for the first token of a draft
    later  for each token after it
    """

    first: float
    later: float

    @classmethod
    def of(cls, kind: str, temperature: float) -> Trace:
        """The trace that has the published fractions of a kind of text at a temperature."""
        few, many = ACCEPTED[kind][temperature]
        low, high = 0.0, 1.0
        for _ in range(50):
            later = (low + high) / 2
            ratio = _mean_power(later, DRAFTED[1]) / _mean_power(later, DRAFTED[0])
            low, high = (later, high) if ratio < many / few else (low, later)
        return cls(min(few / _mean_power(low, DRAFTED[0]), 1.0), low)

    def draws(
        self, seed: str, *, covered: float = 1.0, resolution: float = 0.0
    ) -> Iterator[tuple[bool, float]]:
        """For each token of a draft, whether it is right, and the probability that it is.

        The fraction `covered` of the right tokens can be drafted at all. Probabilities have a beta
        distribution, whose variance is `resolution` of the variance of what is accepted: with 0
        all are the mean, and with 1 each is 0 or 1.
        """
        numbers = random.Random(seed)
        mean = self.first
        while True:
            probability = _spread(mean, resolution, numbers)
            yield numbers.random() < probability * covered, probability
            mean = self.later


def _spread(mean: float, resolution: float, numbers: random.Random) -> float:
    """A probability with this mean; its variance is `resolution` of mean (1 - mean)."""
    if not 0 < resolution < 1 or not 0 < mean < 1:
        return mean if resolution < 1 else float(numbers.random() < mean)
    size = 1 / resolution - 1
    return numbers.betavariate(mean * size, (1 - mean) * size)


def _mean_power(base: float, count: int) -> float:
    """The mean of base^0 to base^(count - 1)."""
    return sum(base**power for power in range(count)) / count
