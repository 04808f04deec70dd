"""The engine under random requests, slots, caches, drafts and failures.

Every request has one terminal event and the tokens that it would have alone, or a prefix of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from hearthd.server.engine.drafting.drafts import Costs
from hearthd.server.engine.generation import Event, Failed, Finished, Generation, Request, Started
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prompt import EmbeddingRows, Prompt
from tests.fake_runtime import FakeRuntime
from tests.server.engine.test_engine import GREEDY, SAMPLED, fake, tokens_in, with_engine

if TYPE_CHECKING:
    from hearthd.runtime.interface import Runtime
    from hearthd.server.engine.engine import Engine

VOCAB, CONTEXT, EOS, POISON = 24, 40, (1, 2), 23


@dataclass(frozen=True, kw_only=True)
class Client:
    """A request whose client disconnects after some tokens, or stays to the end."""

    request: Request
    leaves_after: int | None
    late: bool  # its deadline has passed before it is read


def rows_of(*tokens: int) -> EmbeddingRows:
    """The rows of the embeddings of tokens, as a fake runtime has them."""
    rows = np.tile(np.array(tokens, np.float32)[:, None], (1, FakeRuntime.hidden))
    return EmbeddingRows(rows=rows, digest=hashlib.sha256(rows.tobytes()).digest())


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    """Prompts, many with the same beginning, and rows in some of them."""
    start = draw(st.sampled_from([(), (5, 6, 7, 8) * 3, (5, 6, 7, 8, 9) * 5]))
    rest = draw(st.lists(st.integers(3, POISON), min_size=1, max_size=8))
    if draw(st.booleans()):
        return Prompt(start, tuple(rest))
    first, stop = sorted(draw(st.tuples(*[st.integers(0, len(rest) - 1)] * 2)))
    image = [rows_of(*rest[first:stop])] if first < stop else []
    return Prompt(start, tuple(rest[:first]), *image, tuple(rest[stop:]))


clients = st.builds(
    Client,
    request=st.builds(
        Request,
        prompt=prompts(),
        max_tokens=st.integers(1, 8),
        sampling=st.sampled_from([GREEDY, SAMPLED]),
        seed=st.integers(0, 3),
        cache_prompt=st.booleans(),
    ),
    leaves_after=st.none() | st.none() | st.integers(0, 3),
    late=st.sampled_from([False, False, False, True]),
)


async def follow(generation: Generation, leaves_after: int | None) -> list[Event]:
    """All events of a request; `leaves_after` as in Client."""
    received: list[Event] = []
    with generation:
        if leaves_after != 0:
            async for event in generation.events():
                received.append(event)
                if len(tokens_in(received)) == leaves_after:
                    break
    if not received or not isinstance(received[-1], Finished | Failed):
        received += [event async for event in generation.events()]
    return received


class Free(Costs):
    """Costs at which every draft is worth verifying."""

    are_known = True

    @override
    def of(self, size: int) -> float:
        return 0.5

    @property
    @override
    def of_draft(self) -> float:
        return 0.01

    @override
    def in_calls(self, seconds: float) -> float:
        return 0.01


def free_costs(runtime: Runtime) -> dict[int, Free]:
    """The costs of all calls of a runtime that verify tokens, by their number of sequences."""
    sizes = {1: runtime.verify_tokens, 2: (runtime.pair_tokens,) if runtime.pair_tokens else ()}
    return {count: Free(each) for count, each in sizes.items() if each}


def alone(request: Request, chunk: int, habit: float = 0.0) -> list[int]:
    """The tokens of a request that is served alone, without cache, drafts and failures."""
    runtime = FakeRuntime(vocab_size=VOCAB, context=CONTEXT, chunk=chunk, habit=habit)
    received: list[Event] = []

    async def test(engine: Engine) -> None:
        received.extend(await follow(engine.submit(replace(request, cache_prompt=False)), None))

    with_engine(runtime, test, eos=EOS)
    return tokens_in(received)


def check(client: Client, events: list[Event], expected: list[int]) -> None:
    assert sum(isinstance(event, Finished | Failed) for event in events) == 1
    assert sum(isinstance(event, Started) for event in events) <= 1
    tokens = tokens_in(events)
    assert tokens == expected[: len(tokens)]
    if tokens:
        assert isinstance(events[0], Started)
        assert events[0].cached_tokens < len(client.request.prompt)
        assert client.request.cache_prompt or events[0].cached_tokens == 0
    match events[-1]:
        case Failed(message):
            assert "is poison" in message
        case Finished("cancelled"):
            assert client.leaves_after is not None
        case Finished("timeout"):
            assert client.late
            assert not tokens
        case Finished(reason):
            assert tokens == expected
            assert not client.late
            room = CONTEXT - len(client.request.prompt)
            full = len(tokens) == min(client.request.max_tokens, room)
            assert reason in (("length", "stop") if full else ("stop",))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(clients, min_size=1, max_size=10),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 6),
    st.sampled_from([0, 500, 10**6]),
    st.booleans(),
    st.sampled_from([(), (2,), (3, 8)]),
    st.booleans(),
    st.sampled_from([0.0, 6.0, 20.0]),
    st.sampled_from([0, 160]),
)
def test_every_request_ends_once_and_has_the_tokens_that_it_has_alone(
    clients: list[Client],
    slots: int,
    batch: int,
    chunk: int,
    cache_bytes: int,
    poisoned: bool,
    verify_tokens: tuple[int, ...],
    pairs: bool,
    habit: float,
    state_bytes: int,
) -> None:
    runtime = FakeRuntime(
        vocab_size=VOCAB,
        context=CONTEXT,
        slots=slots,
        batch=batch,
        chunk=chunk,
        poison=POISON if poisoned else None,
        habit=habit,
        verify_tokens=verify_tokens,
        pair_tokens=2 * pairs,
        state_bytes=state_bytes,
    )
    cache = PrefixCache(limit_bytes=cache_bytes) if cache_bytes else None
    costs = free_costs(runtime)
    expected = [alone(client.request, chunk, habit) for client in clients]

    async def test(engine: Engine) -> None:
        past = time.monotonic() - 1
        requests = (replace(c.request, deadline=past) if c.late else c.request for c in clients)
        generations = [engine.submit(request) for request in requests]
        received = await asyncio.gather(
            *(follow(g, c.leaves_after) for g, c in zip(generations, clients, strict=True))
        )
        for client, events, tokens in zip(clients, received, expected, strict=True):
            check(client, events, tokens)
        assert engine.idle
        engine.drain()
        engines.append(engine)

    engines: list[Engine] = []
    with_engine(runtime, test, eos=EOS, cache=cache, costs=costs)
    state = engines[0].state()
    assert [slot.request for slot in state.slots] == [None] * slots
    assert state.queued == 0
    assert state.cache.bytes <= cache_bytes


@pytest.mark.parametrize("slots", [1, 8])
def test_a_seed_repeats_its_answer_beside_other_requests(slots: int) -> None:
    repeated = Request(prompt=Prompt(tuple(range(3, 20))), max_tokens=12, sampling=SAMPLED, seed=4)
    others = [
        Request(prompt=Prompt((3, 4, n)), max_tokens=3 + n, sampling=SAMPLED, seed=n)
        for n in range(5, 13)
    ]
    answers: list[list[int]] = []

    async def test(engine: Engine) -> None:
        generations = [engine.submit(r) for other in others for r in (other, repeated)][:8]
        received = await asyncio.gather(*(follow(g, None) for g in generations))
        answers.extend(tokens_in(events) for events in received[1::2])

    cache = PrefixCache(limit_bytes=10**6)
    with_engine(fake(slots=slots, batch=4, chunk=4), test, cache=cache)
    assert len(answers) == 4
    assert answers == [answers[0]] * 4
    assert len(answers[0]) == 12


def reuse(
    *prompts: tuple[int, ...],
    slots: int = 1,
    cache_prompt: bool = True,
    state_bytes: int = 0,
) -> tuple[list[int], PrefixCache]:
    """How many tokens of each prompt were cached when all are submitted at once; and the cache."""
    cache = PrefixCache(limit_bytes=10**6)
    cached: list[int] = []

    async def test(engine: Engine) -> None:
        generations = [
            engine.submit(
                Request(
                    prompt=Prompt(p),
                    max_tokens=3,
                    sampling=GREEDY,
                    seed=1,
                    cache_prompt=cache_prompt,
                )
            )
            for p in prompts
        ]
        received = await asyncio.gather(*(follow(g, None) for g in generations))
        for events in received:
            assert isinstance(events[0], Started)
            cached.append(events[0].cached_tokens)

    runtime = fake(slots=slots, batch=slots, chunk=4, state_bytes=state_bytes)
    with_engine(runtime, test, cache=cache)
    return cached, cache


def test_cached_chunks_of_a_prompt_are_not_read_again() -> None:
    prompt = tuple(range(3, 17))  # 13 tokens before the last: three whole chunks and a rest
    assert reuse(prompt, prompt, (*prompt[:9], 1, 2, 3))[0] == [0, 13, 8]


def test_with_states_a_prompt_is_read_from_its_last_snapshot() -> None:
    """Snapshots are at the end of a prompt, of its last whole chunk, and where prompts branch."""
    prompt = tuple(range(3, 17))
    branches = [(*prompt[:5], extra, 2, 3) for extra in (1, 2)]
    longer = (*prompt, *range(20, 30))
    cached, _ = reuse(prompt, prompt, *branches, longer, state_bytes=160)
    assert cached == [0, 13, 0, 4, 12]


def test_with_states_a_long_prompt_has_snapshots_in_between() -> None:
    prompt = tuple(index % 60 + 3 for index in range(60))  # 14 whole chunks
    edited = (*prompt[:45], 1, *prompt[46:])
    assert reuse(prompt, edited, state_bytes=160)[0] == [0, 32]


def test_the_last_token_of_a_prompt_is_always_read() -> None:
    prompt = tuple(range(3, 15))  # 12 tokens: two chunks, a rest, and the last one
    assert reuse(prompt, prompt)[0] == [0, 11]
    assert reuse((*prompt, 3, 4), prompt)[0] == [0, 8]


def test_the_tokens_of_an_answer_are_never_cached() -> None:
    prompt = (3, 4, 5)
    cached, cache = reuse(prompt, (*prompt, *range(6, 12)))
    assert cached == [0, 0]
    assert cache.state().misses == 3  # a rest; a chunk and a rest


def test_without_cache_prompt_nothing_is_restored_or_saved() -> None:
    prompt = tuple(range(3, 17))
    cached, cache = reuse(prompt, prompt, cache_prompt=False)
    assert cached == [0, 0]
    assert cache.state().blocks == 0


@pytest.mark.parametrize("length", [33, 30])
def test_equal_prompts_share_chunks_while_they_are_read(length: int) -> None:
    """Eight chunks, the last one whole or not, and the last token."""
    cached, cache = reuse(*[tuple(range(3, 3 + length))] * 4, slots=4)
    assert sum(cached) == 3 * (length - 1)
    assert cache.state().misses == 8
