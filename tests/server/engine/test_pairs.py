"""Drafted tokens of two sequences, which one call verifies: the same answers in fewer calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
from typing_extensions import override

from hearthd.runtime.interface import ALL_LOGITS
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Event, Failed, Request, Token
from tests.server.engine.test_engine import GREEDY, SAMPLED, events_of, request_of
from tests.server.engine.test_engine_random import Free
from tests.server.engine.test_speculation import CONTEXT, SIZES, Counting, answer_of, runtime_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.sampling.options import SamplingOptions
    from hearthd.server.engine.drafting.drafts import Costs
    from tests.fake_runtime import FakeRuntime


def answered_together(
    runtime: FakeRuntime, requests: Sequence[Request], costs: Mapping[int, Costs]
) -> list[list[Event]]:
    """The events of requests that all wait for the engine to start."""
    engine = Engine(runtime, eos=(), queue_limit=9, costs=costs)
    received: list[list[Event]] = []

    async def test() -> None:
        generations = [engine.submit(request) for request in requests]
        engine.start()
        received.extend(await asyncio.gather(*map(events_of, generations)))

    asyncio.run(test())
    engine.close()
    return received


def copied(last: int, max_tokens: int = 30) -> Request:
    return request_of(3, 4, last, max_tokens=max_tokens)


BOTH = {1: Free(SIZES), 2: Free((2,))}


def test_without_calls_for_pairs_nothing_is_drafted_in_a_batch() -> None:
    runtime = runtime_of(slots=2)
    answered_together(runtime, [copied(5), copied(6)], {1: Free(SIZES)})
    # The second prompt is read a step later.
    assert runtime.calls[1:-1] == [2] * 29


@pytest.mark.parametrize("drafter", ["", "right", "wrong"])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_tokens_of_two_sequences_are_verified_together(
    sampling: SamplingOptions, drafter: Literal["", "right", "wrong"]
) -> None:
    requests = [replace(copied(last), sampling=sampling, seed=last) for last in (5, 6)]
    plain = answered_together(runtime_of(slots=2), requests, {})
    runtime = runtime_of(slots=2, drafter=drafter, pair_tokens=2)
    drafted = answered_together(runtime, requests, BOTH)
    assert list(map(answer_of, drafted)) == list(map(answer_of, plain))
    assert runtime.pairs > 3
    assert len(runtime.calls) + runtime.pairs < 31
    expected = ALL_LOGITS if sampling is SAMPLED else GREEDY.logit_margin
    assert {margin for row in runtime.margins for margin in row} == {expected}
    for events in drafted:
        token = events[-2]
        assert isinstance(token, Token)
        assert token.drafted >= token.accepted > 0


def test_a_sequence_does_not_wait_for_the_drafts_of_another_one() -> None:
    """The text of one sequence repeats itself, and the text of the other one does not."""

    class Half(Counting):
        """Slot 1 draws each token from the whole sequence."""

        @override
        def _logits(self, read: Sequence[int]) -> NDArray[np.float32]:
            self.habit = 0.0 if 6 in read[:3] else 1e6
            return super()._logits(read)

    runtime = Half(
        vocab_size=1000, context=CONTEXT, slots=2, batch=2, verify_tokens=SIZES, pair_tokens=2
    )
    answered_together(runtime, [copied(5), copied(6)], BOTH)
    assert runtime.pairs == 0
    assert runtime.calls.count(2) == 29


def test_three_sequences_are_decoded() -> None:
    runtime = runtime_of(slots=3, habit=1e6, pair_tokens=2)
    answered_together(runtime, [copied(last) for last in (5, 6, 7)], {2: Free((2,))})
    assert runtime.pairs <= 1  # of two of them, if the third prompt is read later
    assert runtime.calls.count(3) >= 26


def test_a_source_whose_drafts_are_not_verified_is_asked_less_and_less() -> None:
    """The drafter of a sequence takes time also if the other sequence has no draft."""

    class Silent(Counting):
        """Nothing is drafted in slot 1."""

        asked = 0

        @override
        def draft(self, slot: int, token: int, position: int) -> Iterator[tuple[int, float]]:
            self.asked += slot == 0
            return iter(()) if slot else super().draft(slot, token, position)

    class Paid(Free):
        @override
        def in_calls(self, seconds: float) -> float:
            return 0.2

    runtime = Silent(
        vocab_size=1000, context=512, slots=2, batch=2, drafter="right", verify_tokens=SIZES,
        pair_tokens=2,
    )  # fmt: skip
    answered_together(runtime, [copied(5, 400), copied(6, 400)], {2: Paid((2,))})
    assert runtime.pairs == 0
    assert 1 <= runtime.asked < 20


@pytest.mark.parametrize("breaks", ["call", "row"])
def test_a_verification_of_two_that_fails_ends_at_most_one(
    breaks: Literal["call", "row"], caplog: pytest.LogCaptureFixture
) -> None:
    """A call that fails is replaced by one that reads one token of each."""
    requests = [copied(5), copied(6)]
    plain = answered_together(runtime_of(slots=2), requests, {})
    runtime = runtime_of(slots=2, pair_tokens=2)
    runtime.breaks = breaks
    first, second = answered_together(runtime, requests, {2: Free((2,))})
    assert answer_of(second) == answer_of(plain[1])
    if breaks == "call":
        assert answer_of(first) == answer_of(plain[0])
        assert "verifying tokens of two sequences failed" in caplog.text
    else:
        assert isinstance(first[-1], Failed)
        assert "no memory for a row" in first[-1].message
