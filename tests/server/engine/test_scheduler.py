"""The scheduler and its sequences: random arrivals, cancels and failures, with no model at all."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from typing_extensions import override

from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.generation import EmbedRequest, Request
from hearthd.server.engine.prompt import Prompt
from hearthd.server.engine.scheduler import Scheduler
from hearthd.server.engine.sequence import NO_SLOT, Sequence, new_sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

EOS = 0
CONTEXT = 16


def sequence_of(
    id_: int, prompt: list[int], max_tokens: int, *, context: int = CONTEXT
) -> Sequence:
    request = Request(
        prompt=Prompt(tuple(prompt)), max_tokens=max_tokens, sampling=SamplingOptions(), seed=0
    )
    return new_sequence(
        id_, request, context=context, eos=frozenset({EOS}), deliver=lambda _event: None
    )


def text_of(id_: int, tokens: list[int]) -> Sequence:
    """A text to be embedded."""
    request = EmbedRequest(prompt=tuple(tokens))
    return new_sequence(
        id_, request, context=CONTEXT, eos=frozenset({EOS}), deliver=lambda _event: None
    )


@dataclass(frozen=True, kw_only=True)
class Read:
    """Tokens of a request that a step reads at positions start, start + 1, ... of its slot."""

    request: int
    slot: int
    tokens: tuple[int, ...]
    start: int


def decode_of(sequence: Sequence) -> Read:
    token = sequence.tokens[-1]
    return Read(request=sequence.id, slot=sequence.slot, tokens=(token,), start=sequence.position)


def chunk_of(sequence: Sequence, size: int) -> Read:
    tokens = tuple(sequence.next_chunk(size).tokens)
    return Read(request=sequence.id, slot=sequence.slot, tokens=tokens, start=sequence.position)


def steps(
    scheduler: Scheduler, token: int = 7, chunk: int = 4
) -> Iterator[tuple[tuple[Read, ...], Read | None]]:
    """What every step reads, when every sampled token is the same, to the end."""
    while not scheduler.idle:
        scheduler.admit()
        ready = scheduler.ready()
        batch = tuple(decode_of(sequence) for sequence in ready)
        for sequence in ready:
            if sequence.append(token) is not None:
                scheduler.remove(sequence)
        read = None
        for sequence in scheduler.prefilling()[:1]:
            read = chunk_of(sequence, chunk)
            scheduler.advance(sequence, len(read.tokens))
            if sequence.is_embedding and sequence.ready:
                scheduler.remove(sequence)
        yield batch, read


def chunks(scheduler: Scheduler) -> list[tuple[int, int]]:
    """Request and length of the chunks, in order."""
    return [(read.request, len(read.tokens)) for _, read in steps(scheduler) if read]


def test_a_prompt_is_read_in_chunks_and_an_answer_token_by_token() -> None:
    scheduler = Scheduler(slots=1)
    scheduler.add(sequence_of(1, [10, 11, 12, 13, 14, 15], max_tokens=3))
    reads = [read for batch, chunk in steps(scheduler) for read in (*batch, chunk) if read]
    assert [(read.tokens, read.start) for read in reads] == [
        ((10, 11, 12, 13), 0),
        ((14,), 4),
        ((15,), 5),
        ((7,), 6),
        ((7,), 7),
    ]


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "expected"), [(3, 2, 2), (3, 100, 13), (15, 100, 1)]
)
def test_max_tokens_and_the_context_end_an_answer_by_length(
    prompt: int, max_tokens: int, expected: int
) -> None:
    sequence = sequence_of(1, [5] * prompt, max_tokens)
    sequence.advance(prompt - 1)
    remaining = []
    reasons: list[str | None] = []
    while not reasons or reasons[-1] is None:
        remaining.append(sequence.remaining)
        reasons.append(sequence.append(7))
    assert reasons == [None] * (expected - 1) + ["length"]
    assert remaining == list(range(expected, 0, -1))
    assert list(sequence.tokens) == [5] * prompt + [7] * expected
    assert sequence.position == len(sequence.tokens) - 1


def test_eos_and_a_last_token_stop_an_answer_also_at_its_limit() -> None:
    assert sequence_of(1, [5], max_tokens=1).append(EOS) == "stop"
    assert sequence_of(1, [5], max_tokens=1).append(7, last=True) == "stop"
    assert sequence_of(1, [5], max_tokens=2).append(7) is None


def test_requests_are_admitted_in_the_order_of_arrival() -> None:
    scheduler = Scheduler(slots=2)
    sequences = {id_: sequence_of(id_, [5, 6], max_tokens=2) for id_ in (3, 1, 2)}
    for sequence in sequences.values():
        scheduler.add(sequence)
    assert [sequence.id for sequence in scheduler.admit()] == [3, 1]
    assert scheduler.admit() == ()
    scheduler.remove(sequences[1])
    assert [sequence.id for sequence in scheduler.admit()] == [2]
    assert [sequences[id_].slot for id_ in (3, 1, 2)] == [0, NO_SLOT, 1]


def test_a_sequence_is_found_until_it_is_removed() -> None:
    scheduler = Scheduler(slots=1)
    running, waiting = sequence_of(1, [5], max_tokens=2), sequence_of(2, [5], max_tokens=2)
    for sequence in (running, waiting):
        scheduler.add(sequence)
    scheduler.admit()
    assert scheduler.sequences() == (running, waiting)
    for sequence in (waiting, running):
        assert scheduler.find(sequence.id) is sequence
        scheduler.remove(sequence)
        scheduler.remove(sequence)
        assert scheduler.find(sequence.id) is None
    assert scheduler.idle


def test_a_long_prompt_delays_the_others_by_at_most_a_chunk_per_token() -> None:
    scheduler = Scheduler(slots=3)
    scheduler.add(sequence_of(1, [5], max_tokens=30, context=200))
    scheduler.add(sequence_of(2, [6], max_tokens=30, context=200))
    scheduler.add(sequence_of(3, [7] * 100, max_tokens=1, context=200))
    for batch, chunk in itertools.islice(steps(scheduler), 25):
        assert [read.request for read in batch] == [1, 2]
        assert chunk is not None
        assert (chunk.request, len(chunk.tokens)) == (3, 3 if chunk.start == 96 else 4)


def test_prompts_take_turns() -> None:
    scheduler = Scheduler(slots=3)
    for id_, length in ((1, 20), (2, 6), (3, 9)):
        scheduler.add(sequence_of(id_, [5] * length, max_tokens=1, context=32))
    assert chunks(scheduler) == [
        *((1, 4), (2, 4), (3, 4)),
        *((1, 4), (2, 1), (3, 4)),
        *((1, 4), (1, 4), (1, 3)),
    ]


def test_tokens_that_were_restored_are_not_read_again() -> None:
    scheduler = Scheduler(slots=1)
    sequence = sequence_of(1, [10, 11, 12, 13, 14, 15], max_tokens=1)
    scheduler.add(sequence)
    scheduler.admit()
    scheduler.advance(sequence, 4)
    assert scheduler.prefilling() == (sequence,)
    assert (sequence.position, list(sequence.next_chunk(4).tokens)) == (4, [14])
    scheduler.advance(sequence, 1)
    assert scheduler.prefilling() == ()
    assert scheduler.ready() == (sequence,)
    assert (sequence.position, sequence.tokens[-1], list(sequence.next_chunk(4).tokens)) == (
        5,
        15,
        [],
    )
    with pytest.raises(AssertionError, match="6 prompt tokens read"):
        scheduler.advance(sequence, 1)


def test_a_text_to_be_embedded_is_read_in_chunks_to_its_end() -> None:
    scheduler = Scheduler(slots=2)
    scheduler.add(text_of(1, [5] * 16))
    scheduler.add(text_of(2, [6]))
    reads = list(steps(scheduler))
    assert all(not batch for batch, _ in reads)
    assert [(c.request, c.start, len(c.tokens)) for _, c in reads if c] == [
        *((1, 0, 4), (2, 0, 1), (1, 4, 4), (1, 8, 4), (1, 12, 4))
    ]


@pytest.mark.parametrize("length", [0, 17])
def test_a_text_that_does_not_fit_is_our_bug(length: int) -> None:
    with pytest.raises(AssertionError, match=f"{length} tokens to embed in a context of 16"):
        text_of(3, [5] * length)


@pytest.mark.parametrize("length", [0, 16])
def test_a_prompt_that_does_not_fit_is_our_bug(length: int) -> None:
    with pytest.raises(AssertionError, match=f"a prompt of {length} tokens"):
        sequence_of(1, [5] * length, max_tokens=1)


class Requests(RuleBasedStateMachine):
    """Requests come, are ended from outside, and are stepped; each one ends exactly once."""

    @initialize(slots=st.integers(1, 8), chunk=st.integers(1, 5))
    def begin(self, slots: int, chunk: int) -> None:
        self.scheduler = Scheduler(slots=slots)
        self.slots = slots
        self.chunk = chunk
        self.sequences: dict[int, Sequence] = {}
        self.caches: dict[int, list[int]] = {}  # by slot: what a KV cache would hold
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
        self.sequences[self.accepted] = sequence_of(self.accepted, prompt, max_tokens)
        self.scheduler.add(self.sequences[self.accepted])
        self.expected[self.accepted] = prompt
        self.prompts[self.accepted] = length

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        request = data.draw(st.integers(1, self.accepted))
        self.scheduler.remove(self.sequences[request])
        if not self.ends[request]:
            self.ends[request] += 1

    def follow(self, read: Read) -> None:
        """What a slot's cache holds after some tokens: the request's tokens and nothing else."""
        assert not self.ends[read.request]
        assert read.start + len(read.tokens) <= CONTEXT
        cache = self.caches.setdefault(read.slot, [])
        cache[read.start :] = read.tokens
        assert cache == self.expected[read.request][: len(cache)]

    def admit(self) -> None:
        self.admitted += [sequence.id for sequence in self.scheduler.admit()]
        assert self.admitted == sorted(self.admitted)

    @rule(data=st.data())
    def decode(self, data: st.DataObject) -> None:
        self.admit()
        batch = self.scheduler.ready()
        assert len({sequence.slot for sequence in batch}) == len(batch) <= self.slots
        assert len({sequence.id for sequence in batch}) == len(batch)
        for sequence in batch:
            self.follow(decode_of(sequence))
            assert self.caches[sequence.slot] == self.expected[sequence.id]
        fails: bool = data.draw(st.booleans())
        for sequence in batch:
            token = data.draw(st.sampled_from([EOS, 98, 99]))
            finish = None if fails else sequence.append(token)
            if finish is not None or fails:
                self.scheduler.remove(sequence)
                self.ends[sequence.id] += 1
            else:
                self.expected[sequence.id].append(token)
            assert finish == "stop" or token != EOS or fails
            fails = False

    @rule(whole_chunks=st.integers(1, 3))
    def read_a_chunk(self, whole_chunks: int) -> None:
        """By the model, or several at once out of a cache."""
        self.admit()
        prefilling = self.scheduler.prefilling()
        assert not {s.id for s in prefilling} & {s.id for s in self.scheduler.ready()}
        if not prefilling:
            return
        sequence = prefilling[0]
        chunk = chunk_of(sequence, self.chunk)
        length = self.prompts[sequence.id]
        assert chunk.start % self.chunk == 0
        assert len(chunk.tokens) == min(self.chunk, length - 1 - chunk.start)
        self.follow(chunk)
        self.scheduler.advance(sequence, len(chunk.tokens))
        for other in prefilling[1:]:
            self.waited[other.id] += 1
            assert self.waited[other.id] < self.slots
        self.waited[sequence.id] = 0
        more = min(whole_chunks * self.chunk, (length - 1) // self.chunk * self.chunk)
        if len(chunk.tokens) == self.chunk and more > chunk.start + self.chunk:
            self.caches[chunk.slot] = self.expected[sequence.id][:more]
            self.scheduler.advance(sequence, more - chunk.start - self.chunk)

    @invariant()
    def idle_means_that_every_request_has_ended(self) -> None:
        open_requests = {r for r in range(1, self.accepted + 1) if not self.ends[r]}
        assert self.scheduler.idle == (not open_requests)
        assert {sequence.id for sequence in self.scheduler.sequences()} == open_requests
        assert all(count == 1 for count in self.ends.values() if count)

    @invariant()
    def no_slot_is_shared(self) -> None:
        running = self.scheduler.running()
        assert len({s.slot for s in running}) == len({s.id for s in running}) == len(running)
        assert all(0 <= s.slot < self.slots and not self.ends[s.id] for s in running)

    @override
    def teardown(self) -> None:
        for batch, _ in itertools.islice(steps(self.scheduler, EOS, self.chunk), 1000):
            for read in batch:
                self.ends[read.request] += 1
        assert self.scheduler.idle
        assert self.scheduler.running() == ()
        assert all(self.ends[r] == 1 for r in range(1, self.accepted + 1))


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.integers(1, 15), st.integers(1, 6), st.lists(st.integers(1, 15), max_size=4))
def test_the_chunks_of_a_prompt_depend_on_the_prompt_alone(
    length: int, chunk: int, neighbors: list[int]
) -> None:
    def reads(*lengths: int) -> list[tuple[int, int]]:
        scheduler = Scheduler(slots=3)
        for request, n in enumerate(lengths):
            scheduler.add(sequence_of(request, [5] * n, max_tokens=1))
        return [
            (read.start, len(read.tokens))
            for batch, prefilled in steps(scheduler, chunk=chunk)
            for read in (*batch, prefilled)
            if read and read.request == 0
        ]

    alone = reads(length)
    assert alone == reads(length, *neighbors)
    whole, rest = divmod(length - 1, chunk)
    assert [size for _, size in alone] == [chunk] * whole + [rest] * (rest > 0) + [1]
