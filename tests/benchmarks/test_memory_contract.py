"""The requests of the memory contract are those that take memory, and its peaks are seen."""

from __future__ import annotations

import asyncio
import json
import os
import time

import httpx
import pytest
import tokenizers

from benchmarks.memory_contract import Post, Watch, large_bodies, long_texts, send_large
from benchmarks.serving.server_process import ServerFailed
from hearthd.bundle import REQUEST_MEMORY
from hearthd.server.api.middleware.body_limits import estimated_memory
from tests.patience import PATIENCE
from tests.server.fakes import fake_service, gemma_like, running

_CONTEXT = 256


def _with_runs_of_spaces() -> tokenizers.Tokenizer:
    """A tokenizer like Gemma's, in which sixteen spaces are one token."""
    whole = json.loads(gemma_like().to_str())
    model = whole["model"]
    runs = ["▁" * 2**power for power in range(5)]
    for run in runs:
        model["vocab"].setdefault(run, len(model["vocab"]))
    others = [pair for pair in model["merges"] if "".join(pair) not in runs]
    model["merges"] = [[run, run] for run in runs[:-1]] + others
    return tokenizers.Tokenizer.from_str(json.dumps(whole))


def test_the_largest_bodies_and_the_longest_texts_are_read() -> None:
    """Not refused with 503: then nothing parses them."""
    large = large_bodies(REQUEST_MEMORY)
    assert all(estimated_memory(post.body) > 0.99 * REQUEST_MEMORY for post in large)
    with running(fake_service(_with_runs_of_spaces(), context=_CONTEXT)) as client:
        asyncio.run(_sent(str(client.base_url), large + long_texts(_CONTEXT)))


def test_a_body_that_is_not_read_fails() -> None:
    too_large = large_bodies(REQUEST_MEMORY + 100_000)[:1]
    with (
        running(fake_service(gemma_like(), context=_CONTEXT)) as client,
        pytest.raises(ServerFailed, match="got 413, expected 400"),
    ):
        asyncio.run(_sent(str(client.base_url), too_large))


async def _sent(url: str, posts: list[Post]) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        await send_large(client, posts)


def test_the_peak_of_private_memory_is_measured() -> None:
    size = 64 * 2**20
    with Watch(os.getpid(), 0) as watch:
        time.sleep(0.5)
        before = watch.measured
        held = b"x" * size
        time.sleep(0.5)
        del held
    assert watch.measured - before > 0.8 * size
