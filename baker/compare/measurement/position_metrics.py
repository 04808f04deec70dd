"""How far the prediction of B is from A's at one position.

Logarithms are natural, KL divergences are in nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.compare.sides.prediction import FullPrediction, common_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hearthd.baker.compare.sides.prediction import Prediction

# The number of A's most probable tokens whose log-probabilities are compared.
TOP_TOKENS = 5
# The smallest probability of all unknown tokens together: below it is rounding.
_MIN_REST = 1e-5


@dataclass(frozen=True, kw_only=True)
class PositionResult:
    """The difference of two predictions at one position.

    kl           KL(A || B), exact if both masses are 1, else a lower bound
    mass_a       A's probability of the tokens whose probability is known on both sides
    mass_b       B's probability of these tokens
    agree        whether the most probable token is the same
    differences  |log p_A - log p_B| for A's top five tokens, those that are known of B
    logprob_a    A's log-probability of the next token of the text; None if it is unknown
    logprob_b    the same for B
    """

    kl: float
    mass_a: float
    mass_b: float
    agree: bool
    differences: tuple[float, ...]
    logprob_a: float | None
    logprob_b: float | None

    @property
    def exact(self) -> bool:
        """Whether `kl` covers the whole vocabulary."""
        return self.mass_a == self.mass_b == 1


def measure(a: Prediction, b: Prediction, token: int) -> PositionResult:
    """Compare two predictions of one position, where `token` comes next."""
    tokens = common_tokens(a, b)
    if tokens is None:
        assert isinstance(a, FullPrediction)
        assert isinstance(b, FullPrediction)
        kl, mass_a, mass_b = kl_divergence(a.probabilities, a.logprobs, b.logprobs), 1.0, 1.0
    else:
        p, q = _probabilities(a, tokens), _probabilities(b, tokens)
        mass_a, mass_b = (min(float(known.sum()), 1 - _MIN_REST) for known in (p, q))
        p, q = _with_rest(p), _with_rest(q)
        kl = kl_divergence(p, np.log(p), np.log(q))
    pairs = ((a.logprob(best), b.logprob(best)) for best in a.best(TOP_TOKENS))
    return PositionResult(
        kl=kl,
        mass_a=mass_a,
        mass_b=mass_b,
        agree=a.greedy == b.greedy,
        differences=tuple(abs(x - y) for x, y in pairs if x is not None and y is not None),
        logprob_a=a.logprob(token),
        logprob_b=b.logprob(token),
    )


def kl_divergence(
    p: NDArray[np.float64], log_p: NDArray[np.float64], log_q: NDArray[np.float64]
) -> float:
    """KL(P || Q) = sum of p (log p - log q), in nats; all arguments are f64 (N,)."""
    return max(float(np.dot(p, log_p - log_q)), 0.0)  # rounding can leave -1e-17


def _probabilities(prediction: Prediction, tokens: Sequence[int]) -> NDArray[np.float64]:
    logprobs = (prediction.logprob(token) for token in tokens)
    return np.array([math.exp(value) for value in logprobs if value is not None], np.float64)


def _with_rest(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Known probabilities f64 (N,) and the rest as one outcome, f64 (N + 1,).

    Merging outcomes never increases a KL divergence (the data processing inequality: Cover and
    Thomas, Elements of Information Theory, 2.8), so the divergence of the results is a lower bound.
    """
    outcomes = np.append(p, max(1.0 - p.sum(), _MIN_REST))
    return outcomes / float(outcomes.sum())
