"""The engine with a fake runtime: events, tokens, cancels, failures, slots."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typing_extensions import override

from hearthd.runtime.interface import read_prompt
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import (
    Embedded,
    EmbedRequest,
    Event,
    Failed,
    Finished,
    Generation,
    Request,
    Started,
    Token,
)
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prompt import Prompt
from tests.fake_runtime import FakeRuntime
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from numpy.typing import NDArray

    from hearthd.server.engine.drafting.drafts import Costs


GREEDY = SamplingOptions(temperature=0, top_k=0, top_p=1, min_p=0, repeat_penalty=1, logprobs=None)
SAMPLED = SamplingOptions(
    temperature=1, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.1, logprobs=2
)


def request_of(
    *prompt: int,
    max_tokens: int = 5,
    sampling: SamplingOptions = GREEDY,
    seed: int = 1,
    **fields: Any,
) -> Request:
    return Request(
        prompt=Prompt(prompt), max_tokens=max_tokens, sampling=sampling, seed=seed, **fields
    )


def fake(**fields: Any) -> FakeRuntime:
    return FakeRuntime(**{"vocab_size": 50, "context": 64, **fields})


def with_engine(
    runtime: FakeRuntime,
    test: Callable[[Engine], Coroutine[None, None, None]],
    *,
    eos: tuple[int, ...] = (),
    queue_limit: int = 64,
    cache: PrefixCache | None = None,
    costs: Mapping[int, Costs] | None = None,
    image_row_bytes: int = 0,
) -> None:
    engine = Engine(
        runtime,
        eos=eos,
        queue_limit=queue_limit,
        cache=cache,
        costs=costs,
        image_row_bytes=image_row_bytes,
    )
    engine.start()
    try:
        asyncio.run(test(engine))
    finally:
        engine.close()


async def events_of(generation: Generation) -> list[Event]:
    with generation:
        return [event async for event in generation.events()]


def tokens_in(events: list[Event]) -> list[int]:
    return [event.id for event in events if isinstance(event, Token)]


def greedy_by_hand(prompt: tuple[int, ...], count: int) -> list[int]:
    runtime = fake()
    logits = read_prompt(runtime, prompt)
    tokens = [int(logits.argmax())]
    while len(tokens) < count:
        position = len(prompt) + len(tokens) - 1
        tokens.append(int(runtime.decode([0], [tokens[-1]], [position])[0].argmax()))
    return tokens


def test_a_request_gets_started_then_tokens_then_finished() -> None:
    async def test(engine: Engine) -> None:
        events = await events_of(engine.submit(request_of(1, 2, 3)))
        assert isinstance(events[0], Started)
        assert tokens_in(events) == greedy_by_hand((1, 2, 3), 5)
        assert events[-1] == Finished("length")
        times = [event.at for event in events if isinstance(event, Started | Token)]
        assert times == sorted(times)

    with_engine(fake(), test)


def test_eos_ends_the_answer_and_is_not_part_of_it() -> None:
    answer = greedy_by_hand((1, 2, 3), 5)
    end = next(i for i in range(1, 5) if answer[i] not in answer[:i])

    async def test(engine: Engine) -> None:
        events = await events_of(engine.submit(request_of(1, 2, 3)))
        assert tokens_in(events) == answer[:end]
        assert events[-1] == Finished("stop")

    with_engine(fake(), test, eos=(99, answer[end]))


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_other_requests_and_slots_change_no_token(slots: int) -> None:
    requests = [
        request_of(*range(1, n + 2), max_tokens=4 + n, sampling=SAMPLED, seed=n) for n in range(6)
    ]

    async def alone(engine: Engine) -> None:
        expected.extend([tokens_in(await events_of(engine.submit(r))) for r in requests])

    async def together(engine: Engine) -> None:
        generations = [engine.submit(r) for r in requests]
        results = await asyncio.gather(*(events_of(g) for g in generations))
        assert [tokens_in(events) for events in results] == expected

    expected: list[list[int]] = []
    with_engine(fake(), alone)
    assert [len(tokens) for tokens in expected] == [4, 5, 6, 7, 8, 9]
    with_engine(fake(slots=slots, batch=2, chunk=3), together)


def test_one_slot_serves_requests_in_the_order_of_arrival() -> None:
    async def test(engine: Engine) -> None:
        generations = [engine.submit(request_of(1, n, max_tokens=3)) for n in range(4)]
        results = await asyncio.gather(*(events_of(g) for g in generations))
        spans = [(e[0], e[-2]) for e in results]
        for (_, last), (first, _) in itertools.pairwise(spans):
            assert isinstance(last, Token)
            assert isinstance(first, Started)
            assert last.at <= first.at

    with_engine(fake(), test)


def test_a_client_that_disconnects_cancels_its_request_only() -> None:
    async def test(engine: Engine) -> None:
        first = engine.submit(request_of(1, max_tokens=60))
        second = engine.submit(request_of(2, max_tokens=3))
        with first:
            async for event in first.events():
                if isinstance(event, Token):
                    break
        assert not engine.idle
        events = await asyncio.wait_for(events_of(second), PATIENCE)
        assert events[-1] == Finished("length")
        assert engine.idle
        assert [event async for event in first.events()][-1] == Finished("cancelled")

    with_engine(fake(delay=0.02), test)


def test_a_waiting_request_can_be_cancelled() -> None:
    async def test(engine: Engine) -> None:
        with engine.submit(request_of(1, max_tokens=60)) as first:
            with engine.submit(request_of(2)) as second:
                pass
            assert [e async for e in second.events()] == [Finished("cancelled")]
        assert [e async for e in first.events()][-1] == Finished("cancelled")

    with_engine(fake(delay=0.02), test)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("poisoned", [(1, 13), (13,)])
def test_a_step_that_raises_ends_its_request_only(
    poisoned: tuple[int, ...], slots: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(engine: Engine) -> None:
        generations = [
            engine.submit(request_of(1, 2, max_tokens=4)),
            engine.submit(request_of(*poisoned)),
            engine.submit(request_of(3, 4, max_tokens=4)),
        ]
        first, second, third = await asyncio.gather(*(events_of(g) for g in generations))
        assert first[-1] == third[-1] == Finished("length")
        assert isinstance(second[-1], Failed)
        assert second[-1].message == "a step of the model failed: RuntimeError: token 13 is poison"

    with_engine(fake(poison=13, slots=slots), test)
    assert "token 13 is poison" in caplog.text


def test_logits_that_are_not_numbers_end_the_request(caplog: pytest.LogCaptureFixture) -> None:
    async def test(engine: Engine) -> None:
        events = await events_of(engine.submit(request_of(1)))
        assert isinstance(events[-1], Failed)
        assert "FloatingPointError" in events[-1].message

    with_engine(fake(spread=float("nan")), test)
    assert "FloatingPointError" in caplog.text


def test_log_probabilities_come_with_their_tokens() -> None:
    async def test(engine: Engine) -> None:
        for event in await events_of(engine.submit(request_of(1, sampling=SAMPLED))):
            if isinstance(event, Token):
                assert event.logprobs is not None
                assert len(event.logprobs.top) == 2
                assert event.logprobs.chosen <= event.logprobs.top[0][1] <= 0

    with_engine(fake(), test)


def test_the_penalty_sees_the_answer_as_it_grows() -> None:
    strong = SamplingOptions(
        temperature=0, top_k=0, top_p=1, min_p=0, repeat_penalty=100, logprobs=None
    )

    async def test(engine: Engine) -> None:
        events = await events_of(engine.submit(request_of(1, 2, max_tokens=40, sampling=strong)))
        tokens = tokens_in(events)
        assert len(set(tokens)) > len(set(greedy_by_hand((1, 2), 40)))
        assert len(set(tokens)) == 40

    with_engine(fake(), test)


def test_an_embedding_is_the_mean_of_the_hidden_states() -> None:
    prompt = tuple(range(1, 20))
    (expected,) = [FakeRuntime(vocab_size=50, context=64, chunk=32).embed(0, prompt, 0) / 19]

    async def test(engine: Engine) -> None:
        embeddings = [engine.submit(EmbedRequest(prompt=prompt)) for _ in range(2)]
        beside = engine.submit(request_of(*prompt))
        results = await asyncio.gather(*(events_of(g) for g in (*embeddings, beside)))
        for started, embedded, finished in results[:2]:
            assert isinstance(started, Started)
            assert started.cached_tokens == 0
            assert isinstance(embedded, Embedded)
            np.testing.assert_allclose(embedded.state, expected, atol=1e-6)
            assert finished == Finished("stop")
        assert tokens_in(results[2]) == greedy_by_hand(prompt, 5)

    cache = PrefixCache(limit_bytes=10**6)
    with_engine(fake(slots=2, chunk=4), test, cache=cache)
    assert cache.state().misses == 5


def test_a_last_embedding_is_that_of_the_last_chunk() -> None:
    prompt = tuple(range(1, 20))
    twin = FakeRuntime(vocab_size=50, context=64, chunk=32)
    twin.prefill(0, prompt[:16], 0)
    expected = twin.embed(0, prompt[16:], 16)

    async def test(engine: Engine) -> None:
        events = await events_of(engine.submit(EmbedRequest(prompt=prompt, pooling="last")))
        (embedded,) = [event for event in events if isinstance(event, Embedded)]
        np.testing.assert_array_equal(embedded.state, expected)

    with_engine(fake(slots=2, chunk=4), test)


def test_the_state_shows_the_request_of_each_slot() -> None:
    async def test(engine: Engine) -> None:
        assert [slot.busy for slot in engine.state().slots] == [False, False]
        long = engine.submit(request_of(*range(1, 11), max_tokens=50))
        async for event in long.events():
            if isinstance(event, Token):
                break
        with engine.submit(request_of(1, max_tokens=40)) as short, engine.submit(request_of(2)):
            async for event in short.events():
                if isinstance(event, Token):
                    break
            # The state shows the end of a step, and a token is delivered within one.
            async with asyncio.timeout(PATIENCE):
                while not all(slot.generated_tokens for slot in engine.state().slots):
                    await asyncio.sleep(0.001)
            state = engine.state()
            assert (state.queued, state.queue_limit) == (1, 64)
            assert [slot.request for slot in state.slots] == [0, 1]
            assert [slot.prompt_tokens for slot in state.slots] == [10, 1]
            for slot in state.slots:
                assert slot.read_tokens == slot.prompt_tokens + slot.generated_tokens - 1
        long.__exit__(None, None, None)
        assert [e async for e in short.events()][-1] == Finished("cancelled")
        assert [e async for e in long.events()][-1] == Finished("cancelled")

    runtime = fake(delay=0.02, slots=2, batch=2)
    engines: list[Engine] = []

    async def test_and_keep(engine: Engine) -> None:
        engines.append(engine)
        await test(engine)

    with_engine(runtime, test_and_keep)
    assert [slot.busy for slot in engines[0].state().slots] == [False, False]


def test_an_answer_has_left_its_slot_when_it_ends() -> None:
    """Not only after the step, which goes on with the next chunk of another prompt."""

    async def test(engine: Engine) -> None:
        with engine.submit(request_of(*range(1, 41))):
            await events_of(engine.submit(request_of(1, max_tokens=1)))
            assert [slot.request for slot in engine.state().slots] == [0, None]

    with_engine(fake(delay=0.02, slots=2, chunk=4), test)


def test_a_long_prompt_delays_a_token_by_one_chunk() -> None:
    """Between two tokens of an answer at most one chunk of other prompts is read."""
    calls: list[str] = []

    class Watched(FakeRuntime):
        @override
        def prefill(self, *call: Any, **options: Any) -> None:
            calls.append("chunk")
            super().prefill(*call, **options)

        @override
        def decode(self, *call: Any) -> NDArray[np.float32]:
            calls.append("decode")
            return super().decode(*call)

    async def test(engine: Engine) -> None:
        first = engine.submit(request_of(1, max_tokens=60))
        long = [engine.submit(request_of(*range(1, 40), max_tokens=1)) for _ in range(2)]
        await asyncio.gather(*(events_of(g) for g in (first, *long)))

    with_engine(Watched(vocab_size=50, context=64, slots=3, batch=3, chunk=4, delay=0.001), test)
    read = "".join(call[0] for call in calls)
    assert read.count("c") == 20
    assert "cdc" in read
    assert "cc" not in read.lstrip("c")
