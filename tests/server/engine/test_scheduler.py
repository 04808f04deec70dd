"""The scheduler: random arrivals, cancels and failures, with no model at all."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from server.engine.scheduler import Outcome, Progress, Scheduler, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

EOS = 0


def scheduler_of(slots: int = 1, context: int = 16, chunk: int = 4) -> Scheduler:
    return Scheduler(slots=slots, context=context, chunk=chunk, eos=frozenset({EOS}))


def steps(scheduler: Scheduler, token: int = 7) -> Iterator[tuple[tuple[Work, ...], Work | None]]:
    """Each step's batch and chunk, when every sampled token is the same, to the end."""
    while not scheduler.idle:
        scheduler.admit()
        batch = scheduler.ready()
        scheduler.commit({work.request: token for work in batch})
        chunk = next(iter(scheduler.reading()), None)
        if chunk is not None:
            scheduler.read(chunk.request, len(chunk.tokens))
        yield batch, chunk


def chunks(scheduler: Scheduler) -> list[tuple[int, int]]:
    """Request and length of the chunks, in order."""
    return [(chunk.request, len(chunk.tokens)) for _, chunk in steps(scheduler) if chunk]


def test_a_prompt_is_read_in_chunks_and_an_answer_token_by_token() -> None:
    scheduler = scheduler_of()
    scheduler.add(1, [10, 11, 12, 13, 14, 15], max_tokens=3)
    works = [work for batch, chunk in steps(scheduler) for work in (*batch, chunk) if work]
    assert [(w.tokens, w.start) for w in works] == [
        ((10, 11, 12, 13), 0),
        ((14,), 4),
        ((15,), 5),
        ((7,), 6),
        ((7,), 7),
    ]


def test_max_tokens_and_the_context_end_an_answer_by_length() -> None:
    for prompt, max_tokens, expected in ((3, 2, 2), (3, 100, 13), (15, 100, 1)):
        scheduler = scheduler_of()
        scheduler.add(1, [5] * prompt, max_tokens)
        outcomes: list[Outcome] = []
        while not scheduler.idle:
            scheduler.admit()
            for work in scheduler.reading():
                scheduler.read(1, len(work.tokens))
            outcomes += scheduler.commit({w.request: 7 for w in scheduler.ready()})
        assert [o.token for o in outcomes] == [7] * expected
        assert [o.finish for o in outcomes] == [None] * (expected - 1) + ["length"]


def test_eos_ends_an_answer_and_is_not_part_of_it() -> None:
    scheduler = scheduler_of()
    scheduler.add(1, [5], max_tokens=1)
    scheduler.admit()
    assert scheduler.commit({1: EOS}) == (Outcome(request=1, token=None, finish="stop"),)
    assert scheduler.idle


def test_a_last_token_is_part_of_the_answer_and_stops_it() -> None:
    scheduler = scheduler_of(slots=2)
    scheduler.add(1, [5], max_tokens=1)
    scheduler.add(2, [5], max_tokens=2)
    scheduler.admit()
    assert scheduler.commit({1: 7, 2: 8}, {1}) == (
        Outcome(request=1, token=7, finish="stop"),
        Outcome(request=2, token=8, finish=None),
    )
    assert [work.request for work in scheduler.ready()] == [2]


def test_requests_are_admitted_in_the_order_of_arrival() -> None:
    scheduler = scheduler_of(slots=2)
    for request in (3, 1, 2):
        scheduler.add(request, [5, 6], max_tokens=2)
    assert scheduler.admit() == (3, 1)
    assert scheduler.admit() == ()
    scheduler.end(1)
    assert scheduler.admit() == (2,)


def test_a_long_prompt_delays_no_other_by_more_than_a_chunk_a_token() -> None:
    scheduler = scheduler_of(slots=3, context=200)
    scheduler.add(1, [5], max_tokens=30)
    scheduler.add(2, [6], max_tokens=30)
    scheduler.add(3, [7] * 100, max_tokens=1)
    for batch, chunk in itertools.islice(steps(scheduler), 25):
        assert [work.request for work in batch] == [1, 2]
        assert chunk is not None
        assert (chunk.request, len(chunk.tokens)) == (3, 3 if chunk.start == 96 else 4)


def test_prompts_take_turns() -> None:
    scheduler = scheduler_of(slots=3, context=32)
    scheduler.add(1, [5] * 20, max_tokens=1)
    scheduler.add(2, [5] * 6, max_tokens=1)
    scheduler.add(3, [5] * 9, max_tokens=1)
    assert chunks(scheduler) == [
        *((1, 4), (2, 4), (3, 4)),
        *((1, 4), (2, 1), (3, 4)),
        *((1, 4), (1, 4), (1, 3)),
    ]


def test_what_was_read_otherwise_is_not_read_again() -> None:
    scheduler = scheduler_of()
    scheduler.add(1, [10, 11, 12, 13, 14, 15], max_tokens=1)
    scheduler.admit()
    scheduler.read(1, 4)
    assert [(w.start, w.tokens) for w in scheduler.reading()] == [(4, (14,))]
    scheduler.read(1, 1)
    assert scheduler.reading() == ()
    assert [(w.start, w.tokens) for w in scheduler.ready()] == [(5, (15,))]
    with pytest.raises(AssertionError, match="6 tokens read of a prompt"):
        scheduler.read(1, 1)


def test_a_text_that_is_not_continued_is_read_to_its_end_in_chunks() -> None:
    scheduler = scheduler_of(slots=2)
    scheduler.add_text(1, [5] * 16)
    scheduler.add_text(2, [6])
    works = list(steps(scheduler))
    assert all(not batch for batch, _ in works)
    assert [(c.request, c.start, len(c.tokens)) for _, c in works if c] == [
        *((1, 0, 4), (2, 0, 1), (1, 4, 4), (1, 8, 4), (1, 12, 4))
    ]
    for length in (0, 17):
        with pytest.raises(AssertionError, match=f"{length} tokens in a context of 16"):
            scheduler.add_text(3, [5] * length)


def test_progress_counts_tokens() -> None:
    scheduler = scheduler_of(slots=2)
    scheduler.add(1, [5, 6, 7], max_tokens=9)
    scheduler.admit()
    assert scheduler.progress() == (Progress(request=1, slot=0, prompt=3, read=0, generated=0),)
    scheduler.read(1, 2)
    scheduler.commit({1: 8})
    assert scheduler.progress() == (Progress(request=1, slot=0, prompt=3, read=3, generated=1),)


@pytest.mark.parametrize("length", [0, 16])
def test_a_prompt_that_does_not_fit_is_our_bug(length: int) -> None:
    with pytest.raises(AssertionError, match=f"a prompt of {length}"):
        scheduler_of().add(1, [5] * length, max_tokens=1)


class Requests(RuleBasedStateMachine):
    """Requests come, are ended from outside, and are stepped; each one ends exactly once."""

    @initialize(slots=st.integers(1, 8), chunk=st.integers(1, 5))
    def begin(self, slots: int, chunk: int) -> None:
        self.scheduler = scheduler_of(slots=slots, chunk=chunk)
        self.slots = slots
        self.chunk = chunk
        self.read: dict[int, list[int]] = {}  # by slot: what a cache would hold
        self.prompts: dict[int, int] = {}  # by request: the prompt's length
        self.expected: dict[int, list[int]] = {}  # by request: prompt and answer
        self.ends: Counter[int] = Counter()
        self.waited: Counter[int] = Counter()  # by request: others' chunks since its latest turn
        self.admitted: list[int] = []
        self.accepted = 0

    @rule(length=st.integers(1, 15), max_tokens=st.integers(1, 20))
    def add(self, length: int, max_tokens: int) -> None:
        self.accepted += 1
        prompt = [1 + (self.accepted * 31 + i) % 97 for i in range(length)]
        self.scheduler.add(self.accepted, prompt, max_tokens)
        self.expected[self.accepted] = prompt
        self.prompts[self.accepted] = length

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        request = data.draw(st.integers(1, self.accepted))
        self.scheduler.end(request)
        if not self.ends[request]:
            self.ends[request] += 1

    def follow(self, work: Work) -> None:
        """What a slot's cache holds after some work: the request's tokens and nothing else."""
        assert not self.ends[work.request]
        assert work.start + len(work.tokens) <= 16
        cache = self.read.setdefault(work.slot, [])
        cache[work.start :] = work.tokens
        assert cache == self.expected[work.request][: len(cache)]

    def admit(self) -> None:
        self.admitted += self.scheduler.admit()
        assert self.admitted == sorted(self.admitted)

    @rule(data=st.data())
    def decode(self, data: st.DataObject) -> None:
        self.admit()
        batch = self.scheduler.ready()
        assert len({work.slot for work in batch}) == len(batch) <= self.slots
        assert len({work.request for work in batch}) == len(batch)
        sampled = {}
        for work in batch:
            self.follow(work)
            assert self.read[work.slot] == self.expected[work.request]
            sampled[work.request] = data.draw(st.sampled_from([EOS, 98, 99]))
        fails: bool = data.draw(st.booleans())
        if batch and fails:
            failed = batch[0].request
            self.scheduler.end(failed)
            self.ends[failed] += 1
            del sampled[failed]
        for outcome in self.scheduler.commit(sampled):
            assert not self.ends[outcome.request]
            assert outcome.token == (
                None if sampled[outcome.request] == EOS else sampled[outcome.request]
            )
            if outcome.token is not None:
                self.expected[outcome.request].append(outcome.token)
            if outcome.finish is not None:
                self.ends[outcome.request] += 1

    @rule(whole_chunks=st.integers(1, 3))
    def read_a_chunk(self, whole_chunks: int) -> None:
        """By the model, or several at once out of a cache."""
        self.admit()
        reading = self.scheduler.reading()
        assert not {w.request for w in reading} & {w.request for w in self.scheduler.ready()}
        if not reading:
            return
        chunk = reading[0]
        length = self.prompts[chunk.request]
        assert chunk.start % self.chunk == 0
        assert len(chunk.tokens) == min(self.chunk, length - 1 - chunk.start)
        self.follow(chunk)
        self.scheduler.read(chunk.request, len(chunk.tokens))
        for other in reading[1:]:
            self.waited[other.request] += 1
            assert self.waited[other.request] < self.slots
        self.waited[chunk.request] = 0
        more = min(whole_chunks * self.chunk, (length - 1) // self.chunk * self.chunk)
        if len(chunk.tokens) == self.chunk and more > chunk.start + self.chunk:
            self.read[chunk.slot] = self.expected[chunk.request][:more]
            self.scheduler.read(chunk.request, more - chunk.start - self.chunk)

    @invariant()
    def idle_means_that_every_request_has_ended(self) -> None:
        open_requests = [r for r in range(1, self.accepted + 1) if not self.ends[r]]
        assert self.scheduler.idle == (not open_requests)
        assert all(count == 1 for count in self.ends.values() if count)

    @invariant()
    def no_slot_is_shared(self) -> None:
        progress = self.scheduler.progress()
        assert len({p.slot for p in progress}) == len({p.request for p in progress})
        assert all(0 <= p.slot < self.slots and not self.ends[p.request] for p in progress)

    def teardown(self) -> None:
        for batch, _ in itertools.islice(steps(self.scheduler, token=EOS), 1000):
            for work in batch:
                self.ends[work.request] += 1
        assert self.scheduler.idle
        assert self.scheduler.progress() == ()
        assert all(self.ends[r] == 1 for r in range(1, self.accepted + 1))


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.integers(1, 15), st.integers(1, 6), st.lists(st.integers(1, 15), max_size=4))
def test_how_a_prompt_is_read_depends_on_it_alone(
    length: int, chunk: int, neighbours: list[int]
) -> None:
    def works(*lengths: int) -> list[tuple[int, int]]:
        scheduler = scheduler_of(slots=3, chunk=chunk)
        for request, n in enumerate(lengths):
            scheduler.add(request, [5] * n, max_tokens=1)
        return [
            (work.start, len(work.tokens))
            for batch, read in steps(scheduler)
            for work in (*batch, read)
            if work and work.request == 0
        ]

    alone = works(length)
    assert alone == works(length, *neighbours)
    whole, rest = divmod(length - 1, chunk)
    assert [size for _, size in alone] == [chunk] * whole + [rest] * (rest > 0) + [1]
