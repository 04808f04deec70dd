"""Prompts with rows of embeddings in the engine, with a fake runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prompt import EmbeddingRows, Prompt
from hearthd.text.errors import InvalidRequest, NotSupported
from tests.server.engine.test_engine import events_of, fake, request_of, tokens_in, with_engine
from tests.server.engine.test_engine_random import Free, rows_of

if TYPE_CHECKING:
    from hearthd.server.engine.engine import Engine
    from hearthd.server.engine.generation import Event, Request
    from tests.fake_runtime import FakeRuntime

TEXT = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 3, 4)
TOKENS = request_of(*TEXT, max_tokens=12)
ROWS = replace(TOKENS, prompt=Prompt(TEXT[:2], rows_of(*TEXT[2:9]), TEXT[9:]))


def served(
    runtime: FakeRuntime,
    *requests: Request,
    cache: PrefixCache | None = None,
    costs: dict[int, Free] | None = None,
) -> list[list[Event]]:
    """The events of requests that are served one after the other."""
    received: list[list[Event]] = []

    async def test(engine: Engine) -> None:
        received.extend([await events_of(engine.submit(request)) for request in requests])

    with_engine(runtime, test, cache=cache, costs=costs)
    return received


def test_rows_of_tokens_give_the_answer_of_the_tokens() -> None:
    tokens, rows = served(fake(chunk=4), TOKENS, ROWS)
    assert tokens_in(tokens) == tokens_in(rows)
    assert len(tokens_in(rows)) == 12


def test_rows_are_cached_by_their_digests() -> None:
    cache = PrefixCache(limit_bytes=10**6)
    other = Prompt(TEXT[:2], rows_of(*TEXT[2:6], 20, 21, 22), TEXT[9:])
    events = served(fake(chunk=4), ROWS, ROWS, replace(ROWS, prompt=other), TOKENS, cache=cache)
    assert [one[0].cached_tokens for one in events] == [0, 11, 0, 0]  # type: ignore[union-attr]
    assert tokens_in(events[1]) == tokens_in(events[0]) == tokens_in(events[3])
    assert tokens_in(events[2]) != tokens_in(events[0])


def test_no_draft_continues_into_rows() -> None:
    """The latest tokens, 3 and 4, are followed by rows where they occurred before."""
    runtime = fake(chunk=4, verify_tokens=(8,), habit=1e6)
    (plain,) = served(fake(chunk=4, habit=1e6), ROWS)
    (drafted,) = served(runtime, ROWS, costs={1: Free((8,))})
    assert tokens_in(drafted) == tokens_in(plain)


def refused(prompt: Prompt, *, reads_rows: bool = True) -> None:
    async def test(engine: Engine) -> None:
        engine.submit(replace(ROWS, prompt=prompt))

    with_engine(fake(reads_rows=reads_rows), test)


def test_rows_are_refused_by_a_runtime_that_reads_none() -> None:
    with pytest.raises(NotSupported, match="no entry point that reads images or audio"):
        refused(ROWS.prompt, reads_rows=False)


def test_a_prompt_ends_with_a_token() -> None:
    with pytest.raises(InvalidRequest, match='got "rows of embeddings", expected a token'):
        refused(Prompt((3,), rows_of(4, 5)))


def test_rows_have_the_width_of_hidden_states() -> None:
    wide = EmbeddingRows(rows=np.ones((2, 5), np.float32), digest=bytes(32))
    with pytest.raises(InvalidRequest, match='got "rows of width 5", expected rows of width 4'):
        refused(Prompt((3,), wide, (4,)))
