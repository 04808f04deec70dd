"""One position, two predictions: how far B is from A.

Pure: predictions in, numbers out. Logarithms are natural, divergences in nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baker.compare.sides.prediction import Full, common_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from baker.compare.sides.prediction import Prediction

# How many of A's best tokens are compared one by one.
BEST = 5
# What rounding leaves unknown of the mass of all tokens that are not among the best.
_LEAST_REST = 1e-5


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was found at one position.

    kl           divergence of B from A, KL(A || B); exact if both masses are 1, else a lower bound
    mass_a       the probability that A gives to the tokens whose probability both know
    mass_b       the same for B
    agree        the most probable token is the same
    differences  |log p_A - log p_B| of A's best five, of those that B knows
    logprob_a    of the token that follows in the text; None if A does not say it
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
        """The divergence is that of the whole distributions."""
        return self.mass_a == self.mass_b == 1


def measure(a: Prediction, b: Prediction, token: int) -> Measured:
    """Compare two predictions of the same place, where `token` came next."""
    tokens = common_tokens(a, b)
    if tokens is None:
        assert isinstance(a, Full)
        assert isinstance(b, Full)
        kl, mass_a, mass_b = divergence(a.probabilities, a.logprobs, b.logprobs), 1.0, 1.0
    else:
        p, q = _probabilities(a, tokens), _probabilities(b, tokens)
        mass_a, mass_b = (min(float(known.sum()), 1 - _LEAST_REST) for known in (p, q))
        p, q = _with_rest(p), _with_rest(q)
        kl = divergence(p, np.log(p), np.log(q))
    pairs = ((a.logprob(best), b.logprob(best)) for best in a.best(BEST))
    return Measured(
        kl=kl,
        mass_a=mass_a,
        mass_b=mass_b,
        agree=a.greedy == b.greedy,
        differences=tuple(abs(x - y) for x, y in pairs if x is not None and y is not None),
        logprob_a=a.logprob(token),
        logprob_b=b.logprob(token),
    )


def divergence(
    p: NDArray[np.float64], log_p: NDArray[np.float64], log_q: NDArray[np.float64]
) -> float:
    """KL(P || Q) = sum of p (log p - log q), in nats, each f64 (N,)."""
    return max(float(np.dot(p, log_p - log_q)), 0.0)  # rounding can leave -1e-17


def _probabilities(prediction: Prediction, tokens: Sequence[int]) -> NDArray[np.float64]:
    logprobs = (prediction.logprob(token) for token in tokens)
    return np.array([math.exp(value) for value in logprobs if value is not None], np.float64)


def _with_rest(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities f64 (N + 1,): the known ones (N,), and all other tokens as one.

    Merging outcomes never increases a divergence (the data processing inequality: Cover and
    Thomas, Elements of Information Theory, 2.8), so what is computed of these is a lower bound.
    """
    whole = np.append(p, max(1.0 - p.sum(), _LEAST_REST))
    return whole / float(whole.sum())
