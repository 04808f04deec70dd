"""Mirostat and adaptive-p against their definitions, and what they keep over many tokens."""

from __future__ import annotations

import math
from array import array
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.sampling.candidates import Candidates
from hearthd.sampling.feedback import AdaptiveP, Mirostat1, Mirostat2, feedback_of
from hearthd.sampling.options import SamplingOptions
from hearthd.sampling.sampler import Sampler
from tests.by_day import first_by_day
from tests.sampling.test_chain import softmax

logits_of = st.lists(
    st.integers(-40, 40).map(lambda n: n / 4) | st.just(-math.inf), min_size=1, max_size=150
).filter(lambda values: max(values) > -math.inf)


def kept(candidates: Candidates) -> set[int]:
    return {candidates.id(i) for i, logit in enumerate(candidates.logits) if logit > -np.inf}


def candidates_of(logits: list[float]) -> Candidates:
    return Candidates(logits=np.array(logits, np.float32))


@given(logits_of, st.floats(0.5, 12))
def test_mirostat_1_keeps_what_algorithm_1_keeps(logits: list[float], mu: float) -> None:
    state = Mirostat1(target=5, rate=0.1, vocabulary=len(logits), max_surprise=mu)
    actual = kept(state.reshape(candidates_of(logits)))
    best = sorted((x for x in logits if x > -math.inf), reverse=True)
    if len(best) == 1:
        assert len(actual) == 1
        return
    shares = softmax(best)[:100]
    t = [math.log((i + 2) / (i + 1)) for i in range(len(shares) - 1)]
    b = [math.log(p / q) for p, q in pairwise(shares)]
    s = math.fsum(x * y for x, y in zip(t, b, strict=True)) / math.fsum(x * x for x in t)
    if s == 0 or s == 1:
        return  # the formula divides by 0
    epsilon = s - 1
    k = (epsilon * 2**mu / (1 - len(logits) ** -epsilon)) ** (1 / s)
    # Near an integer, rounding decides.
    assert len(actual) in {max(1, min(int(k * near), len(best))) for near in (1 - 1e-4, 1 + 1e-4)}
    assert min(logits[i] for i in actual) == best[len(actual) - 1]


@given(logits_of, st.floats(0.1, 12))
def test_mirostat_2_keeps_what_algorithm_2_keeps(logits: list[float], mu: float) -> None:
    state = Mirostat2(target=5, rate=0.1, vocabulary=len(logits), max_surprise=mu)
    actual = kept(state.reshape(candidates_of(logits)))
    shares = softmax(logits)
    surprises = {i: -math.log2(p) for i, p in enumerate(shares) if p > 0}
    surely = {i for i, surprise in surprises.items() if surprise < mu - 1e-4}
    perhaps = {i for i, surprise in surprises.items() if surprise < mu + 1e-4}
    if perhaps:
        assert surely <= actual <= perhaps
    else:
        assert actual == {shares.index(max(shares))}


@given(logits_of, st.floats(0, 1), st.floats(0, 1))
def test_adaptive_p_has_the_logits_of_llama_cpp_s_formula(
    logits: list[float], target: float, mean: float
) -> None:
    state = AdaptiveP(target=target, decay=0.9, probabilities=mean * 10, weights=10)
    actual = state.reshape(candidates_of(logits)).logits
    adapted = min(max(2 * target - mean, 0), 1)
    distances = [abs(p - adapted) / 0.3 for p in softmax(logits)]
    expected = [
        -math.inf if logit == -math.inf else 5 - 10 * d * d / (1 + d)
        for logit, d in zip(logits, distances, strict=True)
    ]
    np.testing.assert_allclose(actual, np.array(expected, np.float32), atol=1e-4)


def surprises(count: int, **options: float) -> list[float]:
    """Of an answer's tokens, in bits, where logits follow Zipf's law."""
    logits = -np.log(np.arange(1, 2001)).astype(np.float32) * np.float32(1.1)
    bits = -Candidates(logits=logits).log_probabilities() / math.log(2)
    tokens = array("q")
    sampling = SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0, **options)  # type: ignore[arg-type]
    sampler = Sampler(sampling, seed=3, tokens=tokens, ends=())
    for _ in range(count):
        tokens.append(sampler.sample(logits).token)
    return [float(bits[token]) for token in tokens]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", first_by_day([2.0, 4.0]))
def test_mirostat_keeps_the_mean_surprise_of_kept_tokens(version: int, tau: float) -> None:
    """The surprise is that among the kept tokens, which is below that among all tokens."""
    found = surprises(3000, mirostat=version, mirostat_tau=tau, mirostat_eta=0.1)
    free = surprises(3000)
    assert np.mean(free) > 6
    assert np.mean(found) == pytest.approx(tau, abs=1.5)


def test_mirostat_replaces_the_other_samplers() -> None:
    options = SamplingOptions(mirostat=2, top_k=1, samplers=("top_k", "adaptive_p"))
    assert options.chain == ("temperature",)
    assert isinstance(feedback_of(options, 10), Mirostat2)
    assert options.logit_margin is None


def mean_probability(target: float) -> float:
    """Of 2000 chosen tokens, each out of 50 with new logits."""
    rng, tokens, total = np.random.default_rng(0), array("q"), 0.0
    names = ("temperature", "adaptive_p")
    options = SamplingOptions(temperature=1, samplers=names, adaptive_target=target)
    sampler = Sampler(options, seed=3, tokens=tokens, ends=())
    for _ in range(2000):
        logits = (3 * rng.normal(size=50)).astype(np.float32)
        tokens.append(sampler.sample(logits).token)
        total += softmax(logits.tolist())[tokens[-1]]
    return total / len(tokens)


@pytest.mark.nightly
def test_adaptive_p_draws_the_mean_probability_to_the_target() -> None:
    """Not quite: the formula of llama.cpp also draws tokens that are far from the target."""
    assert mean_probability(0.1) < 0.15
    assert 0.2 < mean_probability(0.3) < 0.35
    assert mean_probability(0.6) > 0.45
    assert 0.33 < mean_probability(-1.0) < 0.38


def test_the_target_moves_by_the_chosen_probabilities() -> None:
    """llama_sampler_adaptive_p_accept."""
    state = AdaptiveP(target=0.3, decay=0.5, probabilities=0.6, weights=2)
    candidates = candidates_of([0, 0, -math.inf])
    state.observe(candidates, state.reshape(candidates), 1)
    assert state.probabilities == pytest.approx(0.5 + 0.3)
    assert state.weights == 2


def test_adaptive_p_is_off_without_its_name_or_its_target() -> None:
    assert feedback_of(SamplingOptions(adaptive_target=0.3), 10) is None
    assert feedback_of(SamplingOptions(samplers=("adaptive_p",)), 10) is None
    assert not SamplingOptions(adaptive_target=0.3).adapts_probability
