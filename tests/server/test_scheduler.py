"""The scheduler: random arrivals, cancels and failures, with no model at all."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from server.engine.scheduler import Outcome, Scheduler, Work

EOS = 0


def scheduler_of(slots: int = 1, context: int = 16, chunk: int = 4) -> Scheduler:
    return Scheduler(slots=slots, context=context, chunk=chunk, eos=frozenset({EOS}))


def run(scheduler: Scheduler, token: int = 7) -> list[list[Work]]:
    """Every step's work, when each sampled token is the same, until there is nothing to do."""
    steps = []
    while not scheduler.idle:
        plan = scheduler.plan()
        steps.append(list(plan))
        scheduler.commit({work.request: token for work in plan if work.sample})
    return steps


def test_a_prompt_is_read_in_chunks_and_an_answer_token_by_token() -> None:
    scheduler = scheduler_of()
    scheduler.add(1, [10, 11, 12, 13, 14], max_tokens=3)
    work = [step[0] for step in run(scheduler)]
    assert [(w.tokens, w.start, w.sample) for w in work] == [
        ((10, 11, 12, 13), 0, False),
        ((14,), 4, True),
        ((7,), 5, True),
        ((7,), 6, True),
    ]


def test_max_tokens_and_the_context_end_an_answer_by_length() -> None:
    for prompt, max_tokens, expected in ((3, 2, 2), (3, 100, 13), (15, 100, 1)):
        scheduler = scheduler_of()
        scheduler.add(1, [5] * prompt, max_tokens)
        outcomes: list[Outcome] = []
        while not scheduler.idle:
            plan = scheduler.plan()
            outcomes += scheduler.commit({w.request: 7 for w in plan if w.sample})
        assert [o.token for o in outcomes] == [7] * expected
        assert [o.finish for o in outcomes] == [None] * (expected - 1) + ["length"]


def test_eos_ends_an_answer_and_is_not_part_of_it() -> None:
    scheduler = scheduler_of()
    scheduler.add(1, [5], max_tokens=1)
    scheduler.plan()
    assert scheduler.commit({1: EOS}) == (Outcome(request=1, token=None, finish="stop"),)
    assert scheduler.idle


def test_a_last_token_is_part_of_the_answer_and_stops_it() -> None:
    scheduler = scheduler_of(slots=2)
    scheduler.add(1, [5], max_tokens=1)
    scheduler.add(2, [5], max_tokens=2)
    scheduler.plan()
    assert scheduler.commit({1: 7, 2: 8}, {1}) == (
        Outcome(request=1, token=7, finish="stop"),
        Outcome(request=2, token=8, finish=None),
    )
    assert [work.request for work in scheduler.plan()] == [2]


def test_requests_are_served_in_the_order_of_arrival() -> None:
    scheduler = scheduler_of()
    for request in (3, 1, 2):
        scheduler.add(request, [5, 6], max_tokens=2)
    order = [step[0].request for step in run(scheduler)]
    assert order == [3, 3, 3, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("length", [0, 16])
def test_a_prompt_that_does_not_fit_is_our_bug(length: int) -> None:
    with pytest.raises(AssertionError, match=f"a prompt of {length}"):
        scheduler_of().add(1, [5] * length, max_tokens=1)


class Requests(RuleBasedStateMachine):
    """Requests come, are ended from outside, and are stepped; each one ends exactly once."""

    @initialize(slots=st.integers(1, 3), chunk=st.integers(1, 5))
    def begin(self, slots: int, chunk: int) -> None:
        self.scheduler = scheduler_of(slots=slots, chunk=chunk)
        self.slots = slots
        self.chunk = chunk
        self.read: dict[int, list[int]] = {}  # by slot: what a cache would hold
        self.expected: dict[int, list[int]] = {}  # by request: prompt and answer
        self.ends: Counter[int] = Counter()
        self.accepted = 0

    @rule(length=st.integers(1, 15), max_tokens=st.integers(1, 20))
    def add(self, length: int, max_tokens: int) -> None:
        self.accepted += 1
        prompt = [1 + (self.accepted * 31 + i) % 97 for i in range(length)]
        self.scheduler.add(self.accepted, prompt, max_tokens)
        self.expected[self.accepted] = prompt

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        request = data.draw(st.integers(1, self.accepted))
        self.scheduler.end(request)
        if not self.ends[request]:
            self.ends[request] += 1

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        plan = self.scheduler.plan()
        assert len({work.slot for work in plan}) == len(plan) <= self.slots
        assert len({work.request for work in plan}) == len(plan)
        sampled = {}
        for work in plan:
            assert not self.ends[work.request]
            assert 0 < len(work.tokens) <= self.chunk
            assert work.start + len(work.tokens) <= 16
            cache = self.read.setdefault(work.slot, [])
            cache[work.start :] = work.tokens
            assert cache == self.expected[work.request][: len(cache)]
            assert work.sample == (cache == self.expected[work.request])
            if work.sample:
                sampled[work.request] = data.draw(st.sampled_from([EOS, 98, 99]))
        fails: bool = data.draw(st.booleans())
        if plan and fails:
            failed = plan[0].request
            self.scheduler.end(failed)
            self.ends[failed] += 1
        for outcome in self.scheduler.commit(sampled):
            assert not self.ends[outcome.request]
            assert outcome.token == (
                None if sampled[outcome.request] == EOS else sampled[outcome.request]
            )
            if outcome.token is not None:
                self.expected[outcome.request].append(outcome.token)
            if outcome.finish is not None:
                self.ends[outcome.request] += 1

    @invariant()
    def idle_means_that_every_request_has_ended(self) -> None:
        open_requests = [r for r in range(1, self.accepted + 1) if not self.ends[r]]
        assert self.scheduler.idle == (not open_requests)
        assert all(count == 1 for count in self.ends.values() if count)

    def teardown(self) -> None:
        for _ in range(1000):
            if self.scheduler.idle:
                break
            plan = self.scheduler.plan()
            for outcome in self.scheduler.commit({w.request: 99 for w in plan if w.sample}):
                if outcome.finish is not None:
                    self.ends[outcome.request] += 1
        assert all(self.ends[r] == 1 for r in range(1, self.accepted + 1))


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.integers(1, 15), st.integers(1, 6))
def test_a_chunk_size_changes_nothing_but_the_steps(length: int, chunk: int) -> None:
    scheduler = scheduler_of(chunk=chunk)
    scheduler.add(1, list(range(1, length + 1)), max_tokens=1)
    work = [step[0] for step in run(scheduler)]
    assert [token for w in work for token in w.tokens] == list(range(1, length + 1))
    assert [w.sample for w in work] == [False] * (len(work) - 1) + [True]
