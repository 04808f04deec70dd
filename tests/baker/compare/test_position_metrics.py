"""Divergences and what is summed up of them, against formulas written another way."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from hearthd.baker.compare.measurement.position_metrics import PositionResult, measure
from hearthd.baker.compare.report.summary import summarize
from hearthd.baker.compare.sides.prediction import (
    FullPrediction,
    NotFinitePrediction,
    TopPrediction,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

logits = st_numpy.arrays(np.float32, 9, elements=st.floats(-20, 20, width=32, allow_nan=False))
# Logits in whole eighths: no two are so near that rounding decides which is the larger.
coarse = st_numpy.arrays(np.int64, 9, elements=st.integers(-80, 80)).map(
    lambda whole: (whole / 8).astype(np.float32)
)


def softmax(values: NDArray[np.float32]) -> NDArray[np.longdouble]:
    powers = np.exp(values.astype(np.longdouble))
    whole: NDArray[np.longdouble] = powers / powers.sum()
    return whole


def best_of(values: NDArray[np.float32], count: int) -> TopPrediction:
    """What a side that tells only its best tokens says of these logits."""
    p = np.log(softmax(values))
    order = np.argsort(-values, kind="stable")[:count]
    return TopPrediction(tuple(int(i) for i in order), tuple(float(p[i]) for i in order))


@given(logits)
def test_log_probabilities_are_those_of_exact_arithmetic(values: NDArray[np.float32]) -> None:
    with localcontext(prec=60):
        exact = [Decimal(float(value)) for value in values]
        total = sum((value.exp() for value in exact), Decimal(0)).ln()
        expected = [float(value - total) for value in exact]
    np.testing.assert_allclose(FullPrediction(values).logprobs, expected, rtol=1e-12, atol=1e-12)


@given(logits, logits)
def test_the_kl_divergence_is_the_textbook_formula(
    ours: NDArray[np.float32], theirs: NDArray[np.float32]
) -> None:
    p, q = softmax(ours), softmax(theirs)
    result = measure(FullPrediction(ours), FullPrediction(theirs), 3)
    assert result.exact
    assert result.kl >= 0
    assert result.kl == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-9, abs=1e-13)
    assert result.logprob_a == pytest.approx(float(np.log(p[3])))
    assert result.logprob_b == pytest.approx(float(np.log(q[3])))
    assert result.agree == (np.argmax(ours) == np.argmax(theirs))


@given(logits, st.floats(-5, 5, width=32))
def test_equal_distributions_have_no_divergence(values: NDArray[np.float32], shift: float) -> None:
    result = measure(FullPrediction(values), FullPrediction(values.copy()), 0)
    assert result.kl == 0
    assert result.agree
    assert set(result.differences) == {0.0}
    moved = measure(FullPrediction(values), FullPrediction(values + np.float32(shift)), 0)
    assert moved.kl < 1e-10  # logits that differ by a constant say the same, but for rounding


@given(coarse, coarse, st.integers(1, 9), st.integers(1, 9))
def test_top_tokens_alone_give_a_lower_bound(
    ours: NDArray[np.float32], theirs: NDArray[np.float32], mine: int, yours: int
) -> None:
    whole = measure(FullPrediction(ours), FullPrediction(theirs), 0).kl
    rounding = 1e-4 * (1 + float(np.ptp(ours) + np.ptp(theirs)))
    for a, b in (
        (FullPrediction(ours), best_of(theirs, yours)),
        (best_of(ours, mine), FullPrediction(theirs)),
        (best_of(ours, mine), best_of(theirs, yours)),
    ):
        result = measure(a, b, 0)
        assert not result.exact
        assert 0 <= result.kl <= whole + rounding
        assert 0 <= result.mass_a < 1
        assert 0 <= result.mass_b < 1


@given(coarse, st.integers(1, 8))
def test_the_lower_bound_of_equal_distributions_is_0(
    values: NDArray[np.float32], count: int
) -> None:
    top = best_of(values, count)
    assert measure(top, top, 0).kl == 0
    assert measure(FullPrediction(values), top, 0).kl < 1e-9


def test_a_lower_bound_computed_by_hand() -> None:
    a = TopPrediction((4, 7), (math.log(0.5), math.log(0.25)))
    b = TopPrediction((7, 4, 5), (math.log(0.5), math.log(0.125), math.log(0.125)))
    result = measure(a, b, 5)
    # Of 4, of 7, and of all others: 1/2 against 1/8, 1/4 against 1/2, 1/4 against 3/8.
    expected = 0.5 * math.log(4) + 0.25 * math.log(0.5) + 0.25 * math.log(2 / 3)
    assert result.kl == pytest.approx(expected)
    assert (result.mass_a, result.mass_b) == pytest.approx((0.75, 0.625))
    assert not result.agree
    assert result.differences == pytest.approx((math.log(4), math.log(2)))
    assert result.logprob_a is None
    assert result.logprob_b == pytest.approx(math.log(0.125))


def test_an_unknown_token_counts_as_one_of_the_others() -> None:
    values = np.zeros(4, np.float32)
    result = measure(
        FullPrediction(values), TopPrediction((-1, 2), (math.log(0.5), math.log(0.25))), 2
    )
    assert result.mass_b == pytest.approx(0.25)
    assert not result.agree


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_rejected(bad: float) -> None:
    with pytest.raises(NotFinitePrediction, match="1 of 3 logits are not finite"):
        FullPrediction(np.array([0, bad, 1], np.float32))


@given(logits, st.integers(1, 12))
def test_the_top_tokens_equal_those_of_a_full_sort(values: NDArray[np.float32], count: int) -> None:
    assert FullPrediction(values).best(count) == tuple(np.argsort(-values, kind="stable")[:count])


def position(kl: float, *, agree: bool = True, logprob: float | None = -1.0) -> PositionResult:
    return PositionResult(
        kl=kl,
        mass_a=1.0,
        mass_b=1.0,
        agree=agree,
        differences=(kl, 2 * kl),
        logprob_a=logprob,
        logprob_b=-2.0,
    )


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=40))
def test_a_summary_equals_exact_arithmetic(thousandths: list[int]) -> None:
    summary = summarize([position(value / 1000, agree=value < 500) for value in thousandths])
    exact = [Fraction(value, 1000) for value in thousandths]
    mean = sum(exact) / len(exact)
    variance = sum((value - mean) ** 2 for value in exact) / (len(exact) - 1)
    assert summary.kl_mean == pytest.approx(float(mean), rel=1e-5)
    assert summary.kl_error == pytest.approx(math.sqrt(variance / len(exact)), rel=1e-5, abs=1e-9)
    assert summary.kl_max == pytest.approx(float(max(exact)), rel=1e-5)
    middle = sorted(exact)[(len(exact) - 1) // 2], sorted(exact)[len(exact) // 2]
    assert summary.kl_median == pytest.approx(float(sum(middle) / 2), rel=1e-5)
    assert summary.agree == sum(value < 500 for value in thousandths)
    assert summary.largest_difference == pytest.approx(float(2 * max(exact)), rel=1e-5)
    assert summary.mean_difference == pytest.approx(float(1.5 * mean), rel=1e-5)


def test_a_perplexity_needs_every_token() -> None:
    summary = summarize([position(0.5), position(0.25, logprob=-3.0)])
    assert summary.perplexity_a == pytest.approx(math.exp(2), rel=1e-5)
    assert summary.perplexity_b == pytest.approx(math.exp(2), rel=1e-5)
    assert summarize([position(0.5), position(0.25, logprob=None)]).perplexity_a is None


def test_one_position_has_no_standard_error() -> None:
    assert summarize([position(0.5)]).kl_error == 0
