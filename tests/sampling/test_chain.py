"""Every sampler against llama.cpp and against its definition in plain Python."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hearthd.sampling.candidates import Candidates
from hearthd.sampling.chain import SAMPLERS, View
from hearthd.sampling.options import SamplingOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden/llamacpp_samplers.json").read_text(encoding="utf-8")
)
OFF = SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0)

# Few distinct values, so that ties are common; and some that take part in nothing.
logits_of = st.lists(
    st.integers(-24, 24).map(lambda n: n / 4) | st.sampled_from([-math.inf, -1e30, 1e30]),
    min_size=1,
    max_size=80,
).filter(lambda values: max(values) > -math.inf)
shares = st.floats(0.01, 0.99)


def view_of(options: SamplingOptions, tokens: list[int] | None = None) -> View:
    array = np.array(tokens or [], np.int64)
    return View(options=options, tokens=array, random=np.random.default_rng(0))


def after(
    name: str, logits: list[float], options: SamplingOptions, tokens: list[int] | None = None
) -> dict[int, float]:
    """The logits by id that one sampler keeps of the whole vocabulary."""
    before = np.array(logits, np.float32)
    candidates = SAMPLERS[name](Candidates(logits=before), view_of(options, tokens))
    assert before.tolist() == np.array(logits, np.float32).tolist()
    if candidates.ordered:
        assert candidates.logits.tolist() == sorted(candidates.logits.tolist(), reverse=True)
    actual = {candidates.id(i): float(x) for i, x in enumerate(candidates.logits)}
    assert len(actual) == candidates.size
    return actual


def softmax(logits: list[float]) -> list[float]:
    weights = [math.exp(x - max(logits)) for x in logits]
    return [w / math.fsum(weights) for w in weights]


def best_first(logits: list[float]) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


def entropy_of(logits: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in softmax(logits) if p > 0)


@pytest.mark.parametrize("number", range(len(GOLDEN["cases"])))
def test_a_chain_keeps_the_candidates_that_llamacpp_keeps(number: int) -> None:
    case: dict[str, Any] = GOLDEN["cases"][number]
    texts = GOLDEN["texts"].items()
    breakers = {int(i): ((),) for i, text in texts if any(b in text for b in GOLDEN["breakers"])}
    options = SamplingOptions(
        **case["options"], samplers=tuple(case["samplers"]), dry_breakers=breakers
    )
    ids, logits = np.array(case["ids"]), np.array(case["logits"], np.float32)
    for id_, bias in case["logit_bias"]:
        logits[ids == id_] += np.float32(bias)
    candidates = Candidates(logits=logits, ids=ids)
    view = view_of(options, case["tokens"])
    for name in options.samplers:
        candidates = SAMPLERS[name](candidates, view)
    probabilities = softmax(candidates.logits.tolist())
    ours = {candidates.id(i): p for i, p in enumerate(probabilities) if p > 0}
    left = softmax([logit for _, logit in case["left"]])
    theirs = {int(i): p for (i, _), p in zip(case["left"], left, strict=True) if p > 0}
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_the_golden_cases_cover_every_sampler() -> None:
    cases = GOLDEN["cases"]
    assert {name for case in cases for name in case["samplers"]} == set(SAMPLERS)
    assert sum(len(case["left"]) > 1 for case in cases) > 100


@given(logits_of, st.integers(0, 90))
def test_top_k_keeps_the_k_best(logits: list[float], k: int) -> None:
    kept = best_first(logits)[: k or None]
    assert set(after("top_k", logits, replace(OFF, top_k=k))) == set(kept)


@given(logits_of, shares, st.integers(0, 9))
def test_top_p_keeps_the_fewest_tokens_of_that_probability(
    logits: list[float], share: float, min_keep: int
) -> None:
    order, probabilities = best_first(logits), softmax(logits)
    reached = np.cumsum([probabilities[i] for i in order])
    assume(not np.any(abs(reached - share) < 1e-5))  # rounding decides; a definition does not
    count = next(n for n, sum_ in enumerate(reached, start=1) if sum_ >= share)
    options = replace(OFF, top_p=share, min_keep=min_keep)
    assert set(after("top_p", logits, options)) == set(order[: max(count, min_keep)])


@given(logits_of, shares, st.integers(0, 9))
def test_min_p_keeps_tokens_above_a_fraction_of_the_best(
    logits: list[float], share: float, min_keep: int
) -> None:
    order, probabilities = best_first(logits), softmax(logits)
    ratios = [probabilities[i] / probabilities[order[0]] for i in order]
    assume(all(abs(ratio - share) > 1e-5 for ratio in ratios))
    count = max(min_keep, sum(ratio >= share for ratio in ratios))
    options = replace(OFF, min_p=share, min_keep=min_keep)
    assert set(after("min_p", logits, options)) == set(order[:count])


@given(logits_of, shares, st.integers(0, 9))
def test_typical_p_keeps_the_tokens_closest_to_the_entropy(
    logits: list[float], share: float, min_keep: int
) -> None:
    probabilities, entropy = softmax(logits), entropy_of(logits)
    distances = [abs(-math.log(p) - entropy) if p else math.inf for p in probabilities]
    order = sorted(range(len(logits)), key=lambda i: (distances[i], i))
    reached = np.cumsum([probabilities[i] for i in order])
    assume(not np.any(abs(reached - share) < 1e-5))
    count = max(next(n for n, sum_ in enumerate(reached, start=1) if sum_ > share), min_keep)
    kept = after("typ_p", logits, replace(OFF, typical_p=share, min_keep=min_keep))
    # Equal distances may round apart: what counts is how far the kept ones are.
    assert len(kept) == min(count, len(logits))
    expected = [distances[i] for i in order[:count]]
    assert sorted(distances[i] for i in kept) == pytest.approx(expected, abs=1e-4)


def test_an_exactly_reached_share_is_enough_for_top_p_and_not_for_typical_p() -> None:
    logits = [0.0] * 4
    assert set(after("top_p", logits, replace(OFF, top_p=0.5))) == {0, 1}
    assert set(after("typ_p", logits, replace(OFF, typical_p=0.5))) == {0, 1, 2}


@given(logits_of, st.floats(0.01, 0.6), st.integers(0, 9))
def test_xtc_drops_all_above_the_threshold_but_the_last(
    logits: list[float], threshold: float, min_keep: int
) -> None:
    probabilities = softmax(logits)
    assume(all(abs(p - threshold) > 1e-6 for p in probabilities))
    above = [i for i in best_first(logits) if probabilities[i] >= threshold]
    dropped = set(above[:-1]) if threshold <= 0.5 else set()
    if len(logits) - len(dropped) < min_keep:
        dropped = set()
    options = replace(OFF, xtc_probability=1, xtc_threshold=threshold, min_keep=min_keep)
    assert set(after("xtc", logits, options)) == set(range(len(logits))) - dropped


def test_xtc_runs_with_its_probability() -> None:
    view = view_of(replace(OFF, xtc_probability=0.3))
    candidates = Candidates(logits=np.zeros(4, np.float32))
    sizes = [SAMPLERS["xtc"](candidates, view).size for _ in range(2000)]
    assert 540 < sizes.count(1) < 660  # 600 expected, with a standard deviation of 20
    assert set(sizes) == {1, 4}


def test_xtc_never_keeps_only_banned_tokens() -> None:
    kept = after("xtc", [1, 1, -math.inf], replace(OFF, xtc_probability=1, xtc_threshold=0))
    assert kept[1] == 1


@given(logits_of, st.floats(0.1, 10), st.floats(0, 3), st.floats(0.1, 3))
def test_temperature_divides_the_logits(
    logits: list[float], base: float, delta: float, exponent: float
) -> None:
    divisor = base
    if delta and len(logits) > 1:
        low, high = max(0, base - delta), base + delta
        evenness = min(1, max(0, entropy_of(logits) / math.log(len(logits))))
        divisor = low + (high - low) * evenness**exponent
        # At a divisor of nearly 0, rounding decides.
        assume(divisor > 0.01)
    elif delta:
        divisor = 1
    options = replace(OFF, temperature=base, dynatemp_range=delta, dynatemp_exponent=exponent)
    actual = after("temperature", logits, options)
    assert actual == pytest.approx({i: x / divisor for i, x in enumerate(logits)}, rel=1e-3)


@given(logits_of)
def test_temperature_0_keeps_the_first_of_the_best(logits: list[float]) -> None:
    first = best_first(logits)[0]
    assert set(after("temperature", logits, replace(OFF, temperature=0))) == {first}
    # A temperature that f32 hardly holds may leave others that are as good.
    actual = after("temperature", logits, replace(OFF, temperature=1e-45))
    left = {i for i, x in actual.items() if x > -math.inf}
    assert first in left <= {i for i, x in enumerate(logits) if x == max(logits)}


history = st.lists(st.integers(0, 5), max_size=40)


@given(
    st.lists(st.integers(-24, 24).map(lambda n: n / 4), min_size=6, max_size=9),
    history,
    st.floats(0.25, 4),
    st.floats(-2, 2),
    st.floats(-2, 2),
    st.integers(-1, 45),
)
def test_penalties_lower_recent_tokens_by_definition(
    logits: list[float],
    tokens: list[int],
    repeat: float,
    presence: float,
    frequency: float,
    last_n: int,
) -> None:
    recent = tokens if last_n == -1 else tokens[-last_n:] if last_n else []
    expected = dict(enumerate(logits))
    for token in set(recent):
        value = logits[token] * repeat if logits[token] <= 0 else logits[token] / repeat
        expected[token] = value - presence - frequency * recent.count(token)
    options = replace(
        OFF,
        repeat_penalty=repeat,
        repeat_last_n=last_n,
        presence_penalty=presence,
        frequency_penalty=frequency,
    )
    assert after("penalties", logits, options, tokens) == pytest.approx(expected, abs=1e-4)


def dry_by_definition(
    tokens: list[int], allowed: int, breakers: list[tuple[int, ...]]
) -> dict[int, int]:
    """By token, the length of the longest repetition that it would continue."""
    unbroken = len(tokens)
    for start in reversed(range(len(tokens))):
        ends = [start + len(b) for b in breakers if tuple(tokens[start : start + len(b)]) == b]
        if ends:
            unbroken = len(tokens) - max(ends)
            break
    actual: dict[int, int] = {}
    for token in set(tokens) - {b[0] for b in breakers if len(b) == 1}:
        for length in range(allowed, min(unbroken, len(tokens) - 1) + 1):
            repeated = [*tokens[len(tokens) - length :], token]
            # A repetition of no length stands before every token but the first.
            places = range(0 if length else 1, len(tokens) - length)
            if any(tokens[at : at + length + 1] == repeated for at in places):
                actual[token] = length
    return actual if unbroken >= allowed else {}


@given(
    st.lists(st.integers(0, 3), max_size=24),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), max_size=2),
    st.integers(0, 4),
    st.integers(-1, 30),
    st.sampled_from([1.0, 1.75, 3.0]),
)
def test_dry_penalizes_repetitions_by_definition(
    tokens: list[int], breakers: list[tuple[int, ...]], allowed: int, last_n: int, base: float
) -> None:
    recent = tokens if last_n == -1 else tokens[-last_n:] if last_n else []
    lengths = dry_by_definition(recent, allowed, breakers) if len(recent) > allowed else {}
    by_head: dict[int, tuple[tuple[int, ...], ...]] = {}
    for head, *tail in breakers:
        by_head[head] = (*by_head.get(head, ()), tuple(tail))
    options = replace(
        OFF,
        dry_multiplier=0.5,
        dry_base=base,
        dry_allowed_length=allowed,
        dry_penalty_last_n=last_n,
        dry_breakers=by_head,
    )
    expected = {i: -0.5 * base ** (lengths[i] - allowed) if i in lengths else 0 for i in range(4)}
    assert after("dry", [0.0] * 4, options, tokens) == pytest.approx(expected, rel=1e-5)


def test_dry_of_a_long_repetition_stays_finite_and_bans_nothing_else() -> None:
    options = replace(OFF, dry_multiplier=1)
    actual = after("dry", [0.0, 0.0], options, [0] * 3000)
    assert -math.inf < actual[0] < -1e38  # 1.75 ** 158, the most that llama.cpp gives
    assert actual[1] == 0


def test_samplers_work_on_any_candidates() -> None:
    """Positions and ids must not be confused after candidates were dropped or sorted."""
    logits: NDArray[np.float32] = np.array([5, 1, 4, 2, 3], np.float32)
    view = view_of(replace(OFF, presence_penalty=10, dry_multiplier=10), [4, 2, 4, 2, 4])
    for name, penalized in (("penalties", {2, 4}), ("dry", {2})):
        candidates = SAMPLERS[name](Candidates(logits=logits).best(4), view)
        actual = {candidates.id(i): x for i, x in enumerate(candidates.logits.tolist())}
        assert set(actual) == {0, 2, 3, 4}
        assert {i for i, x in actual.items() if x != logits[i]} == penalized
