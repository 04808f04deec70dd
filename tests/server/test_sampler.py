"""The sampler against its definitions, written out in plain Python."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from server.engine.sampler import (
    SamplingOptions,
    candidates,
    choose,
    log_probabilities,
    random_state,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

OFF = SamplingOptions(
    temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0, logprobs=None
)
GREEDY = replace(OFF, temperature=0.0)

# Few distinct values, so that ties are common.
logits_of = st.lists(st.integers(-24, 24).map(lambda n: n / 4), min_size=1, max_size=300).map(
    lambda values: np.array(values, np.float32)
)
shares = st.floats(0, 1, exclude_max=True)


def kept_by_definition(logits: NDArray[np.float32], options: SamplingOptions) -> set[int]:
    """What llama-server's top_k, top_p and min_p leave, one after the other."""
    best = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    kept = best[: options.top_k] if options.top_k else best
    weights = [math.exp(logits[i]) for i in kept]
    if options.top_p < 1:
        total = math.fsum(weights)
        reached = 0.0
        for count, weight in enumerate(weights, start=1):
            reached += weight
            # Rounding decides here; a definition does not.
            assume(abs(reached / total - options.top_p) > 1e-5)
            if reached / total >= options.top_p:
                kept = kept[:count]
                break
    if options.min_p > 0:
        ratios = [math.exp(float(logits[i]) - float(logits[kept[0]])) for i in kept]
        assume(all(abs(ratio - options.min_p) > 1e-9 for ratio in ratios))
        kept = [i for i, ratio in zip(kept, ratios, strict=True) if ratio >= options.min_p]
    return set(kept)


@given(
    logits_of, st.integers(0, 310), st.one_of(st.just(1.0), shares), st.one_of(st.just(0.0), shares)
)
def test_the_kept_tokens_are_those_of_the_definitions(
    logits: NDArray[np.float32], top_k: int, top_p: float, min_p: float
) -> None:
    options = replace(OFF, top_k=top_k, top_p=top_p, min_p=min_p)
    ids = candidates(logits, options).tolist()
    assert len(ids) == len(set(ids))
    assert set(ids) == kept_by_definition(logits, options)


def test_a_nucleus_larger_than_the_first_guess() -> None:
    logits = np.zeros(10_000, np.float32)
    kept = candidates(logits, replace(OFF, top_p=0.5001))
    assert set(kept.tolist()) == set(range(5001))


@given(logits_of, st.integers(0, 2**32 - 1))
def test_greedy_takes_the_first_of_the_largest(logits: NDArray[np.float32], seed: int) -> None:
    assert choose(logits, GREEDY, (), random_state(seed)) == int(np.argmax(logits))


@given(
    logits_of,
    st.lists(st.integers(0, 299), max_size=70),
    st.floats(0.25, 4),
)
def test_the_penalty_divides_positive_and_multiplies_negative_logits_once(
    logits: NDArray[np.float32], recent: list[int], penalty: float
) -> None:
    recent = [token for token in recent if token < len(logits)]
    before = logits.copy()
    expected = logits.copy()
    for token in set(recent):
        value = expected[token]
        expected[token] = value / penalty if value > 0 else value * penalty
    options = replace(GREEDY, repeat_penalty=penalty)
    assert choose(logits, options, recent, random_state(0)) == int(np.argmax(expected))
    np.testing.assert_array_equal(logits, before)


def test_the_draw_has_the_probabilities_of_the_softmax() -> None:
    logits = np.log(np.array([1, 2, 3, 4], np.float32))
    options = replace(OFF, temperature=0.5)  # squares the weights: 1, 4, 9, 16 of 30
    generator = random_state(0)
    count = 6000
    drawn = Counter(choose(logits, options, (), generator) for _ in range(count))
    expected = np.array([1, 4, 9, 16]) / 30 * count
    chi_squared = sum((drawn[i] - expected[i]) ** 2 / expected[i] for i in range(4))
    assert chi_squared < 16.3  # the 99.9 % point for three degrees of freedom


class Zero(np.random.Generator):
    """Draws the one number that a careless search takes for an impossible token."""

    def random(self, *_: object, **__: object) -> float:  # type: ignore[override]
        return 0.0


def test_an_impossible_token_is_never_drawn() -> None:
    logits = np.array([-np.inf, -np.inf, 1, 1], np.float32)
    assert choose(logits, OFF, (), Zero(np.random.Philox(0))) == 2


@pytest.mark.parametrize("temperature", [5e-324, 1e-30, 1e30])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    logits = np.array([0, 5, -5, -np.inf], np.float32)
    tokens = {
        choose(logits, replace(OFF, temperature=temperature), (), random_state(s))
        for s in range(50)
    }
    assert tokens == ({1} if temperature < 1 else {0, 1, 2})


def test_a_token_takes_one_number_from_the_generator_and_a_greedy_one_none() -> None:
    logits = np.zeros(100, np.float32)
    for options, numbers in (
        (OFF, 1),
        (replace(OFF, top_k=5, top_p=0.5, min_p=0.1), 1),
        (GREEDY, 0),
    ):
        used, fresh = random_state(9), random_state(9)
        choose(logits, options, (1, 2), used)
        fresh.random(numbers)
        assert used.random() == fresh.random()


def test_equal_seeds_give_equal_tokens_and_others_do_not() -> None:
    logits = np.zeros(1000, np.float32)

    def draw(seed: int) -> list[int]:
        generator = random_state(seed)
        return [choose(logits, OFF, (), generator) for _ in range(20)]

    assert draw(7) == draw(7) != draw(8)
    assert draw(7)[:3] == [468, 426, 362]  # as recorded once: other releases must agree


@given(logits_of, st.integers(0, 20))
def test_log_probabilities_are_the_log_softmax(
    logits: NDArray[np.float32], alternatives: int
) -> None:
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact).sum())
    for token in {0, len(logits) - 1}:
        found = log_probabilities(logits, token, alternatives)
        assert found.chosen == pytest.approx(exact[token], abs=1e-6)
    best = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:alternatives]
    assert [i for i, _ in found.top] == best
    assert [p for _, p in found.top] == pytest.approx([exact[i] for i in best], abs=1e-6)


def test_log_probabilities_of_large_logits() -> None:
    found = log_probabilities(np.array([1e30, 1e30, -np.inf], np.float32), 0, 3)
    assert found.chosen == pytest.approx(-math.log(2), abs=1e-6)
    assert found.top[2] == (2, -math.inf)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad: float) -> None:
    logits = np.array([0, bad, 1], np.float32)
    for options in (OFF, GREEDY):
        with pytest.raises(FloatingPointError, match="finite"):
            choose(logits, options, (), random_state(0))


def test_the_usual_options_cost_little_at_a_large_vocabulary() -> None:
    logits = np.random.default_rng(0).standard_normal(262_144, np.float32) * 4
    options = replace(OFF, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.1)
    generator = random_state(0)

    def once() -> float:
        began = time.perf_counter()
        choose(logits, options, range(64), generator)
        return time.perf_counter() - began

    # A full sort takes four times as long. The best of many, since the machine is shared.
    began = time.perf_counter()
    np.argsort(logits, kind="stable")
    full_sort = time.perf_counter() - began
    assert min(once() for _ in range(30)) < full_sort / 2
