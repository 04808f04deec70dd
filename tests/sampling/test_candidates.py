"""The arithmetic under the samplers, against plain sorts and sums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.sampling.candidates import Candidates, draw, fewest, largest, total
from hearthd.sampling.constraint import ConstraintFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

seeds = st.integers(0, 2**32 - 1)


def values_of(seed: int, size: int, distinct: int) -> NDArray[np.float32]:
    """Numbers, many of them equal and some -inf."""
    random = np.random.default_rng(seed)
    values = random.integers(0, distinct, size).astype(np.float32)
    values[values == 0] = -np.inf
    return values


@given(seeds, st.sampled_from([1, 7, 511, 2048, 2049, 5000]), st.integers(1, 3000), st.data())
def test_the_largest_are_those_of_a_stable_sort(
    seed: int, size: int, distinct: int, data: st.DataObject
) -> None:
    values = values_of(seed, size, distinct)
    count = data.draw(st.integers(1, size))
    expected = np.argsort(-values, kind="stable")[:count]
    np.testing.assert_array_equal(largest(values, count), expected)


@given(seeds, st.sampled_from([1, 30, 511, 512, 513, 3000]), st.floats(0, 1, exclude_max=True))
def test_a_draw_is_where_the_cumulative_sum_exceeds_the_number(
    seed: int, size: int, number: float
) -> None:
    random = np.random.default_rng(seed)
    weights = random.random(size, np.float32) * (random.random(size) < 0.7)
    weights[random.integers(size)] = 1
    weights = weights.astype(np.float32)
    position = draw(weights, number)
    assert weights[position] > 0
    goal = number * math.fsum(weights)
    tolerance = 1e-4 * size
    assert math.fsum(weights[:position]) <= goal + tolerance
    assert math.fsum(weights[: position + 1]) >= goal - tolerance


@pytest.mark.parametrize("size", [1, 2, 512, 1500])
def test_the_first_and_last_positions_drawn_have_a_weight(size: int) -> None:
    weights = np.zeros(size + 2, np.float32)
    weights[1:-1] = 1 / 3
    assert draw(weights, 0.0) == 1
    assert draw(weights, float(np.nextafter(1, 0))) == size


def test_draws_are_proportional_to_the_weights() -> None:
    weights = np.arange(1, 1025, dtype=np.float32)
    numbers = (np.arange(4000) + 0.5) / 4000
    drawn = np.bincount([draw(weights, u) // 128 for u in numbers], minlength=8)
    expected = weights.reshape(8, 128).sum(axis=1) / weights.sum() * 4000
    np.testing.assert_allclose(drawn, expected, atol=2)


def test_a_share_may_need_more_than_the_first_64_tokens() -> None:
    values = np.zeros(10_000, np.float32)
    ones = np.ones(10_000, np.float32)
    np.testing.assert_array_equal(fewest(values, ones, 0.5001, min_count=0), np.arange(5001))
    np.testing.assert_array_equal(
        fewest(values, ones, 0.5, min_count=0, strictly=True), range(5001)
    )
    np.testing.assert_array_equal(fewest(values, ones, 0.1, min_count=7000), np.arange(7000))


@given(seeds, st.sampled_from([1, 511, 512, 3000]))
def test_the_total_is_the_sum(seed: int, size: int) -> None:
    weights = np.random.default_rng(seed).random(size, np.float32)
    assert total(weights) == pytest.approx(math.fsum(weights), rel=1e-5)


@given(seeds, st.sampled_from([1, 4, 600]), st.sampled_from([0.0, 1.0, 50.0, 1e30]))
def test_log_probabilities_and_entropy(seed: int, size: int, spread: float) -> None:
    logits = np.random.default_rng(seed).standard_normal(size).astype(np.float32) * spread
    logits = logits.astype(np.float32)
    exact = logits.astype(np.float64) - float(logits.max())
    exact -= np.log(np.exp(exact).sum())
    candidates = Candidates(logits=logits)
    np.testing.assert_allclose(candidates.log_probabilities(), exact, rtol=1e-5, atol=1e-5)
    p = np.exp(exact)
    entropy = -(p[p > 0] * exact[p > 0]).sum()
    assert candidates.entropy() == pytest.approx(entropy, abs=1e-4)


def test_an_impossible_token_adds_nothing_to_the_entropy() -> None:
    logits = np.array([0, -np.inf, 0], np.float32)
    assert Candidates(logits=logits).entropy() == pytest.approx(math.log(2))


def test_changes_that_leave_no_candidate_are_an_error() -> None:
    candidates = Candidates(logits=np.zeros(2, np.float32))
    with pytest.raises(ConstraintFailed):
        candidates.change(np.array([0, 1]), lambda logits, _which: logits - np.float32(np.inf))
    huge = candidates.change(np.array([1]), lambda logits, _which: logits + np.float32(np.inf))
    assert np.isfinite(huge.logits).all()
