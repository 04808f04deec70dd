"""Prefills of several chunks at once: only for a sequence alone, and without rows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.server.engine import step
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prompt import Prompt
from tests.server.engine.test_engine import (
    events_of,
    fake,
    greedy_by_hand,
    request_of,
    tokens_in,
    with_engine,
)
from tests.server.engine.test_engine_random import rows_of

if TYPE_CHECKING:
    import pytest

    from hearthd.server.engine.engine import Engine
    from tests.fake_runtime import FakeRuntime

PROMPT = tuple(range(1, 48))


def runtime_of(slots: int = 1) -> FakeRuntime:
    """A runtime whose long prefill reads four chunks."""
    return fake(chunk=4, long_prefill=16, slots=slots, batch=slots)


def test_a_sequence_alone_reads_several_chunks_at_once() -> None:
    """After a chunk, whose time says how long that takes."""
    runtime = runtime_of()

    async def test(engine: Engine) -> None:
        events = await events_of(engine.submit(request_of(*PROMPT)))
        assert tokens_in(events) == greedy_by_hand(PROMPT, 5)

    with_engine(runtime, test)
    assert runtime.prefill_sizes == [4, 16, 16, 4, 4, 2]


def test_the_prefix_cache_has_each_chunk_of_a_long_prefill() -> None:
    runtime = runtime_of()

    async def test(engine: Engine) -> None:
        await events_of(engine.submit(request_of(*PROMPT)))
        runtime.prefill_sizes.clear()
        other = (*PROMPT[:24], 49, *PROMPT[25:])
        events = await events_of(engine.submit(request_of(*other)))
        assert tokens_in(events) == greedy_by_hand(other, 5)

    with_engine(runtime, test, cache=PrefixCache(limit_bytes=1 << 20))
    assert runtime.prefill_sizes == [16, 4, 2]


def test_no_call_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = runtime_of()
    runtime.delay = 0.002
    monkeypatch.setattr(step, "_LONG_PREFILL_SECONDS", 0.004)

    async def test(engine: Engine) -> None:
        await events_of(engine.submit(request_of(*PROMPT)))

    with_engine(runtime, test)
    assert max(runtime.prefill_sizes) == 4


def test_while_others_have_a_slot_a_call_reads_one_chunk() -> None:
    runtime = runtime_of(slots=2)

    async def test(engine: Engine) -> None:
        short = engine.submit(request_of(1, max_tokens=60))
        answers = await asyncio.gather(
            events_of(short), events_of(engine.submit(request_of(*PROMPT)))
        )
        assert tokens_in(answers[1]) == greedy_by_hand(PROMPT, 5)

    with_engine(runtime, test)
    assert max(runtime.prefill_sizes) == 4


def test_rows_are_read_one_chunk_after_the_other() -> None:
    runtime = runtime_of()
    prompt = Prompt(PROMPT[:6], rows_of(*PROMPT[6:10]), PROMPT[10:])

    async def test(engine: Engine) -> None:
        request = replace(request_of(*PROMPT), prompt=prompt)
        assert tokens_in(await events_of(engine.submit(request))) == greedy_by_hand(PROMPT, 5)

    with_engine(runtime, test)
    assert runtime.prefill_sizes == [4, 4, 4, 16, 16, 2]
