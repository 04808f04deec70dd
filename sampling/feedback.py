"""Samplers that steer by the tokens that they chose: they run last, and each answer has its own.

As in llama.cpp: Mirostat runs in place of the chain, behind its temperature only; adaptive-p runs
behind the chain, where a request names it among its samplers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from hearthd.sampling.candidates import Candidates

if TYPE_CHECKING:
    from hearthd.sampling.options import SamplingOptions

# Mirostat estimates the exponent of Zipf's law from this many of the most likely tokens.
_ZIPF_TOKENS = 100
# Adaptive-p: the logit at the target, and how it falls with the distance from it.
_PEAK, _SHARPNESS, _WIDTH = 5.0, 10.0, 0.3


class Feedback(ABC):
    """The state of such a sampler in one answer."""

    @abstractmethod
    def reshape(self, candidates: Candidates) -> Candidates:
        """The candidates to draw from."""

    @abstractmethod
    def observe(self, candidates: Candidates, reshaped: Candidates, position: int) -> None:
        """Learn which of the reshaped candidates was chosen."""


@dataclass(kw_only=True)
class _Mirostat(Feedback):
    """Keeps the surprise of the chosen tokens near `target`, in bits ("Mirostat", 2021).

    rate          how fast it corrects itself
    vocabulary    the number of tokens
    max_surprise  mu in the paper
    """

    target: float
    rate: float
    vocabulary: int
    max_surprise: float

    @override
    def observe(self, candidates: Candidates, reshaped: Candidates, position: int) -> None:
        surprise = -float(reshaped.log_probabilities()[position]) / math.log(2)
        self.max_surprise -= self.rate * (surprise - self.target)


class Mirostat1(_Mirostat):
    """Keeps the best tokens whose surprise Zipf's law puts below `max_surprise` (algorithm 1)."""

    @override
    def reshape(self, candidates: Candidates) -> Candidates:
        possible = candidates.keep(
            np.flatnonzero(candidates.logits > -np.inf), ordered=candidates.ordered
        )
        return possible.best(self._count(possible)) if possible.size > 1 else possible

    def _count(self, candidates: Candidates) -> int:
        logits = candidates.best(_ZIPF_TOKENS).logits.astype(np.float64)
        ranks = np.arange(1, logits.size)
        steps = np.log((ranks + 1) / ranks)
        exponent = float((steps * -np.diff(logits)).sum() / (steps**2).sum())
        epsilon, log_vocabulary = exponent - 1, math.log(self.vocabulary)
        # epsilon / (1 - vocabulary ** -epsilon), which has a limit at 0.
        ratio = epsilon / -math.expm1(-epsilon * log_vocabulary) if epsilon else 1 / log_vocabulary
        log_power = math.log(ratio) + self.max_surprise * math.log(2)
        if log_power >= exponent * math.log(candidates.size):
            return candidates.size
        return max(1, int(math.exp(log_power / exponent))) if log_power > 0 else 1


class Mirostat2(_Mirostat):
    """Keeps the tokens whose surprise is at most `max_surprise` (algorithm 2)."""

    @override
    def reshape(self, candidates: Candidates) -> Candidates:
        surprise = candidates.log_probabilities() / np.float32(-math.log(2))
        kept = np.flatnonzero(surprise <= self.max_surprise)
        return (
            candidates.keep(kept, ordered=candidates.ordered) if kept.size else candidates.best(1)
        )


@dataclass(kw_only=True)
class AdaptiveP(Feedback):
    """Prefers tokens whose probability is near a target (llama_sampler_adaptive_p).

    The target moves so that the chosen probabilities have it as their mean, which weights a token
    by `decay` to the power of its age. `probabilities` and `weights` are the sums of that mean.
    """

    target: float
    decay: float
    probabilities: float
    weights: float

    @override
    def reshape(self, candidates: Candidates) -> Candidates:
        target = min(max(2 * self.target - self.probabilities / self.weights, 0.0), 1.0)
        distance = np.abs(np.exp(candidates.log_probabilities()) - np.float32(target))
        distance /= np.float32(_WIDTH)
        logits = np.float32(_PEAK) - np.float32(_SHARPNESS) * distance**2 / (1 + distance)
        logits[candidates.logits == -np.inf] = -np.inf
        return Candidates(logits=logits, ids=candidates.ids)

    @override
    def observe(self, candidates: Candidates, reshaped: Candidates, position: int) -> None:
        probability = math.exp(float(candidates.log_probabilities()[position]))
        self.probabilities = probability + self.decay * self.probabilities
        self.weights = 1 + self.decay * self.weights


ADAPTIVE_P = "adaptive_p"


def feedback_of(options: SamplingOptions, vocabulary: int) -> Feedback | None:
    """The state for a new answer, or None if the options name no such sampler."""
    if options.mirostat:
        kind = {1: Mirostat1, 2: Mirostat2}[options.mirostat]
        return kind(
            target=options.mirostat_tau,
            rate=options.mirostat_eta,
            vocabulary=vocabulary,
            max_surprise=2 * options.mirostat_tau,
        )
    if options.adapts_probability:
        weights = 1 / (1 - options.adaptive_decay)
        return AdaptiveP(
            target=options.adaptive_target,
            decay=options.adaptive_decay,
            probabilities=options.adaptive_target * weights,
            weights=weights,
        )
    return None
