"""When requests of the engine end early or are rejected: deadlines, queue limit, drain, stop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from hearthd.server.engine.drafting.drafts import Costs
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import EmbedRequest, Failed, Finished, Started
from hearthd.server.engine.inbox import Cancel, Message, Stop, Submit
from hearthd.server.errors import Draining, EngineStopped, QueueFull
from tests.patience import PATIENCE
from tests.server.engine.late_clock import LateClock
from tests.server.engine.test_engine import (
    events_of,
    fake,
    greedy_by_hand,
    request_of,
    tokens_in,
    with_engine,
)


def test_a_deadline_ends_an_embedding() -> None:
    async def test(engine: Engine) -> None:
        request = EmbedRequest(prompt=(1, 2), deadline=time.monotonic() - 1)
        assert await events_of(engine.submit(request)) == [Finished("timeout")]

    with_engine(fake(), test)


def test_a_deadline_ends_an_answer_with_the_tokens_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(engine: Engine) -> None:
        request = request_of(1, 2, max_tokens=60, deadline=time.monotonic() + PATIENCE)
        events = await events_of(engine.submit(request))
        assert events[-1] == Finished("timeout")
        assert tokens_in(events) == greedy_by_hand((1, 2), 3)

    runtime = fake()
    LateClock(runtime, monkeypatch).go_ahead_after(3)
    with_engine(runtime, test)


def test_a_deadline_ends_a_waiting_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(engine: Engine) -> None:
        first = engine.submit(request_of(1, max_tokens=60))
        second = engine.submit(request_of(2, deadline=time.monotonic() + PATIENCE))
        assert await events_of(second) == [Finished("timeout")]
        assert (engine.state().slots[0].request, engine.state().queued) == (0, 0)
        runtime.gate.set()
        assert len(tokens_in(await events_of(first))) == 60

    runtime = fake()
    LateClock(runtime, monkeypatch).go_ahead_after(20, then=runtime.gate.clear)
    with_engine(runtime, test)


def test_a_deadline_ends_a_request_while_its_prompt_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(engine: Engine) -> None:
        prompt = range(1, 60)
        request = request_of(*prompt, deadline=time.monotonic() + PATIENCE)
        events = await events_of(engine.submit(request))
        assert [type(event) for event in events] == [Started, Finished]
        assert events[-1] == Finished("timeout")

    runtime = fake(chunk=1)
    LateClock(runtime, monkeypatch, "prefill").go_ahead_after(20)
    with_engine(runtime, test)
    assert len(runtime.prefill_sizes) == 20


def test_a_full_queue_rejects_requests_until_one_leaves() -> None:
    runtime = fake(slots=2, batch=2)

    async def test(engine: Engine) -> None:
        runtime.gate.clear()
        generations = [engine.submit(request_of(n, max_tokens=20)) for n in range(4)]
        with pytest.raises(QueueFull) as raised:
            engine.submit(request_of(1))
        runtime.gate.set()
        assert (raised.value.queued, raised.value.limit) == (2, 2)
        assert raised.value.retry_after == 1
        generations[3].__exit__(None, None, None)
        assert (await events_of(generations[3]))[-1] == Finished("cancelled")
        generations[3] = engine.submit(request_of(3, max_tokens=20))
        results = await asyncio.gather(*(events_of(g) for g in generations))
        assert [events[-1] for events in results] == [Finished("length")] * 4

    with_engine(runtime, test, queue_limit=2)


def test_a_queue_limit_of_0_accepts_as_many_requests_as_slots() -> None:
    runtime = fake()

    async def test(engine: Engine) -> None:
        runtime.gate.clear()
        generation = engine.submit(request_of(1))
        with pytest.raises(QueueFull, match="got 0 waiting requests, expected at most 0"):
            engine.submit(request_of(1))
        runtime.gate.set()
        assert (await events_of(generation))[-1] == Finished("length")

    with_engine(runtime, test, queue_limit=0)


def test_draining_serves_accepted_requests_and_rejects_new_ones() -> None:
    async def test(engine: Engine) -> None:
        generations = [engine.submit(request_of(n, max_tokens=5)) for n in range(3)]
        engine.drain()
        with pytest.raises(Draining):
            engine.submit(request_of(1))
        results = await asyncio.gather(*(events_of(g) for g in generations))
        assert [events[-1] for events in results] == [Finished("length")] * 3
        assert engine.idle

    with_engine(fake(delay=0.01), test)


def test_closing_cancels_all_requests_and_ends_the_thread() -> None:
    before = set(threading.enumerate())

    async def test(engine: Engine) -> None:
        generations = [engine.submit(request_of(n, max_tokens=60)) for n in range(3)]
        await asyncio.to_thread(engine.close)
        results = await asyncio.gather(*(events_of(g) for g in generations))
        assert [events[-1] for events in results] == [Finished("cancelled")] * 3
        assert "engine" not in {one.name for one in set(threading.enumerate()) - before}

    with_engine(fake(delay=0.02), test)


def test_a_request_behind_a_stop_is_cancelled_too() -> None:
    """A stop and a submission from two threads may enter the inbox in any order."""

    async def test() -> None:
        engine = Engine(fake(), eos=(), queue_limit=64)
        before = engine.submit(request_of(1))
        engine._inbox.put(Stop())
        behind = engine.submit(request_of(2))
        engine.start()
        for generation in (before, behind):
            assert await asyncio.wait_for(events_of(generation), 5) == [Finished("cancelled")]
        engine.close()

    asyncio.run(test())


def test_an_internal_error_ends_every_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("our own bug")

    async def test(engine: Engine) -> None:
        monkeypatch.setattr("hearthd.server.engine.scheduler.Scheduler.ready", broken)
        generations = [engine.submit(request_of(n)) for n in range(3)]
        results = await asyncio.gather(*(events_of(g) for g in generations))
        assert {type(events[-1]) for events in results} == {Failed}
        with pytest.raises(EngineStopped):
            engine.submit(request_of(1))

    with_engine(fake(), test)
    assert "our own bug" in caplog.text


def test_a_client_whose_event_loop_is_closed_does_not_stop_the_engine() -> None:
    engine = Engine(fake(delay=0.01), eos=(), queue_limit=64)
    engine.start()

    async def leave() -> None:
        engine.submit(request_of(1, max_tokens=3))

    async def stay() -> None:
        events = await events_of(engine.submit(request_of(2, max_tokens=3)))
        assert events[-1] == Finished("length")

    asyncio.run(leave())
    asyncio.run(stay())
    engine.close()


class Panic(BaseException):
    """What PyO3 raises when Rust code panics: no Exception."""


def panic(*_: object, **__: object) -> None:
    raise Panic("a library's bug")


@pytest.mark.parametrize(
    "where",
    [
        "hearthd.server.engine.sequence.Sequence.append",
        "hearthd.server.engine.step.PromptLookup",
        "hearthd.sampling.sampler.Sampler.sample",
        "tests.fake_runtime.FakeRuntime.decode",
        "tests.fake_runtime.FakeRuntime.prefill",
        "tests.fake_runtime.FakeRuntime.set_adapter",
    ],
)
def test_a_panic_ends_its_request_and_no_other(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    async def test(engine: Engine) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(where, panic)
            events = await events_of(engine.submit(request_of(1, 2, 3)))
            assert [type(event) for event in events if not isinstance(event, Started)] == [Failed]
        assert (await events_of(engine.submit(request_of(2))))[-1] == Finished("length")

    with_engine(fake(), test, costs={1: Costs((2, 4))})


def test_a_draft_that_fails_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(engine: Engine) -> None:
        monkeypatch.setattr("hearthd.server.engine.step.Drafts.best", panic)
        assert (await events_of(engine.submit(request_of(2))))[-1] == Finished("length")

    with_engine(fake(), test, costs={1: Costs((2, 4))})


def test_a_panic_outside_of_a_request_ends_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(engine: Engine) -> None:
        monkeypatch.setattr("hearthd.server.engine.scheduler.Scheduler.ready", panic)
        generations = [engine.submit(request_of(n)) for n in range(3)]
        results = await asyncio.gather(*(events_of(g) for g in generations))
        assert {type(events[-1]) for events in results} == {Failed}
        assert isinstance(engine.unavailable(), EngineStopped)

    with_engine(fake(), test)


def test_a_message_that_fails_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Engine._handle

    def broken(engine: Engine, message: Message) -> None:
        if isinstance(message, Cancel) or (isinstance(message, Submit) and not message.sequence.id):
            panic()
        handle(engine, message)

    async def test() -> None:
        monkeypatch.setattr(Engine, "_handle", broken)
        engine = Engine(fake(), eos=(), queue_limit=64)
        engine._inbox.put(Cancel(99))
        failing = engine.submit(request_of(1))
        behind = engine.submit(request_of(2))
        engine.start()
        async with asyncio.timeout(PATIENCE):
            assert [type(event) for event in await events_of(failing)] == [Failed]
            assert (await events_of(behind))[-1] == Finished("length")
        engine.close()

    asyncio.run(test())


def test_a_client_that_leaves_before_its_adapter_is_written_stops_nothing() -> None:
    async def test(engine: Engine) -> None:
        running = engine.submit(request_of(1, max_tokens=20))
        writing = asyncio.create_task(engine.write_adapter(1, ()))
        await asyncio.sleep(0)
        writing.cancel()
        assert (await events_of(running))[-1] == Finished("length")
        assert (await events_of(engine.submit(request_of(2))))[-1] == Finished("length")

    with_engine(fake(delay=0.01), test)
