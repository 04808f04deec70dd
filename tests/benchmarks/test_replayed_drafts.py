"""The benchmark of replayed drafts: the acceptance of the trace, and answers that are the text."""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from typing_extensions import override

from benchmarks.drafts import replayed_drafts
from benchmarks.drafts.acceptance_trace import ACCEPTED, DRAFTED, Trace
from benchmarks.drafts.confidence import Drafted, resolution
from benchmarks.drafts.replayed_drafts import (
    Bench,
    Call,
    ReplayedRuntime,
    measure,
    tables,
    usual_coverage,
)
from hearthd.server.engine.drafting.drafts import Costs
from tests.fake_runtime import FakeRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.runtime.interface import Runtime

_TOKENS = 997  # of a vocabulary
_DRAFTS = 2000


class Fixed(Costs):
    """A verify costs a tenth more per token, and a drafted token a tenth."""

    @override
    def of(self, size: int) -> float:
        return 1 + 0.1 * (size - 1)

    @override
    def in_calls(self, seconds: float) -> float:
        return 0.1


@pytest.mark.parametrize("kind", ACCEPTED)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_draws_are_accepted_as_often_as_was_published(kind: str, temperature: float) -> None:
    trace = Trace.of(kind, temperature)
    for drafted, published in zip(DRAFTED, ACCEPTED[kind][temperature], strict=True):
        computed = np.mean(trace.first * trace.later ** np.arange(drafted))
        assert computed == pytest.approx(published, abs=0.007)
        drafts = [list(islice(trace.draws(f"{seed}"), drafted)) for seed in range(_DRAFTS)]
        accepted = sum(len([*takewhile(lambda draw: draw[0], draft)]) for draft in drafts)
        assert accepted / (_DRAFTS * drafted) == pytest.approx(published, abs=0.03)


def test_answers_are_the_text_with_drafts_that_the_trace_accepts() -> None:
    runtime = FakeRuntime(
        vocab_size=_TOKENS, context=256, slots=2, batch=2, chunk=64, verify_tokens=(2, 4),
        drafter="wrong",
    )  # fmt: skip
    bench = Bench(runtime)
    bench.costs = {1: Fixed(runtime.verify_tokens)}
    numbers = np.random.default_rng(0).integers(_TOKENS, size=(3, 160))  # nothing to look up
    texts = [tuple(text) for text in numbers.tolist()]
    measured = measure(bench, texts, (1, 2), rounds=1)
    assert len(measured) == 2 * 2 * len(texts)
    code, together = measured[0.0, 1, 0], measured[0.0, 2, 0]
    assert code.accepted > 0.75 * code.drafted > 0, "a draft of code is right"
    creative = measured[1.0, 1, 2]
    assert 0 < creative.accepted < 0.75 * creative.drafted
    assert together.tokens == 2 * code.tokens
    speeds, ratios, of_calls, _ = tables(measured, bench.costs, bench.medians)
    assert len(speeds.rows) == 2 * (len(ACCEPTED) + 1)
    assert len(ratios.rows) == len(of_calls.rows) == 4


def test_the_calls_of_an_answer_say_what_drafts_gain() -> None:
    """Each call yields a token and the accepted ones."""
    runtime = FakeRuntime(
        vocab_size=_TOKENS, context=256, chunk=64, verify_tokens=(2, 4), drafter="wrong"
    )
    bench = Bench(runtime)
    bench.costs = {1: Fixed(runtime.verify_tokens)}
    text = tuple(np.random.default_rng(0).integers(_TOKENS, size=160).tolist())
    speeds = measure(bench, [text], (1,), rounds=2)[0.0, 1, 0]
    plain, drafted = speeds.calls[False], speeds.calls[True]
    answered = speeds.tokens
    assert plain == {Call("decode", 1, 1, 0.0): answered}
    reads = sum(number for call, number in drafted.items() if call.name != "draft")
    assert reads + speeds.accepted == answered
    assert {call.tokens for call in drafted if call.name == "verify"} <= {2, 3, 4}
    medians = {call: 0.5 if call.name == "draft" else 2.0 for call in (*plain, *drafted)}
    drafts = drafted.total() - reads
    assert speeds.ratio_of_calls(medians) == pytest.approx(4 * answered / (4 * reads + drafts))


class Drafting:
    """A runtime that drafts one token at a time."""

    vocab_size = _TOKENS

    def draft(self, *_: int) -> Iterator[tuple[int, float]]:
        yield 0, 1.0


@pytest.mark.parametrize(("drafted", "fraction"), [(_TOKENS, 1.0), (_TOKENS - 1, 0.98)])
def test_tokens_that_a_drafter_lacks_are_not_drafted(drafted: int, fraction: float) -> None:
    covered = usual_coverage(drafted, _TOKENS)
    replayed = ReplayedRuntime(cast("Runtime", Drafting()), covered=covered)
    replayed.text, replayed.trace = tuple(range(_TOKENS)), Trace(1.0, 1.0)
    drafts = [next(replayed.draft(0, position, position)) for position in range(900)]
    right = [token == position for position, (token, _) in enumerate(drafts, 1)]
    assert np.mean(right) == pytest.approx(fraction, abs=0.01)
    assert all(right) == (fraction == 1.0)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_probabilities_explain_a_share_of_what_is_accepted(share: float) -> None:
    trace = Trace(0.7, 0.7)
    draws = [next(trace.draws(f"{seed}", resolution=share)) for seed in range(4 * _DRAFTS)]
    probabilities = np.array([probability for _, probability in draws])
    assert np.mean([is_right for is_right, _ in draws]) == pytest.approx(0.7, abs=0.015)
    assert probabilities.mean() == pytest.approx(0.7, abs=0.01)
    assert probabilities.var() == pytest.approx(share * 0.7 * 0.3, abs=0.005)
    measured = resolution([Drafted(probability, is_right) for is_right, probability in draws])
    assert measured == pytest.approx(share, abs=0.03)


def test_the_texts_are_pages_of_the_documentation() -> None:
    assert (replayed_drafts._PAGES / "drafts.md").is_file()
