"""The real model gives the same bits with and without the prefix cache, alone or in a batch.

The prompts reach beyond the sliding window, so that the rings have wrapped where they are saved.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hearthd.runtime.open_bundle import open_bundle
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Event, Finished, Generation, Request, Started, Token
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prefixes.prefix_store import PrefixStore
from hearthd.server.engine.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.runtime.language_model import IreeRuntime
    from hearthd.server.engine.drafting.drafts import Costs
    from tests.conftest import Bundles

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent.parent / "golden" / "gemma3_270m_llamacpp_f32.json"
TEXT = tuple(json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]["fdl_1290"]["prompt_ids"])
LONG = TEXT[:901]
WHOLE_CHUNKS, ALL_BUT_THE_LAST = 896, 900
# The seven best of each step are bits of the logits, as good as all of them.
PREFIXED = Request(prompt=Prompt(LONG), max_tokens=8, sampling=SamplingOptions(logprobs=7), seed=3)
FORKED = dataclasses.replace(PREFIXED, prompt=Prompt((*LONG[:700], *TEXT[1000:1100])))
OTHERS = [
    dataclasses.replace(PREFIXED, prompt=Prompt(TEXT[5:300]), max_tokens=12),
    dataclasses.replace(PREFIXED, prompt=Prompt(TEXT[:9]), max_tokens=20),
]


@pytest.fixture(scope="module")
def runtime(bundles: Bundles) -> IreeRuntime:
    return open_bundle(bundles["gemma3"], threads=None)[1]


async def events_of(generation: Generation) -> list[Event]:
    with generation:
        return [event async for event in generation.events()]


def serve(
    runtime: IreeRuntime,
    cache: PrefixCache | None,
    *requests: Request,
    costs: Mapping[int, Costs] | None = None,
) -> list[tuple[int, list[object]]]:
    """Of each request, all served at once: how many tokens were cached, and its answer."""
    engine = Engine(runtime, eos=(), queue_limit=9, cache=cache, costs=costs)
    engine.start()

    async def together() -> list[list[Event]]:
        return await asyncio.gather(*(events_of(engine.submit(r)) for r in requests))

    try:
        event_lists = asyncio.run(together())
    finally:
        engine.close()
    answers = []
    for started, *events in event_lists:
        assert isinstance(started, Started)
        assert events[-1] == Finished("length")
        tokens = [(e.id, e.logprobs) for e in events if isinstance(e, Token)]
        answers.append((started.cached_tokens, list[object](tokens)))
    return answers


@pytest.fixture(scope="module")
def uncached(runtime: IreeRuntime) -> list[list[object]]:
    """The answers to PREFIXED and FORKED, each alone and without a cache."""
    return [serve(runtime, None, request)[0][1] for request in (PREFIXED, FORKED)]


@pytest.mark.nightly
def test_cached_prompts_give_equal_answers_alone_and_in_a_batch(
    runtime: IreeRuntime, uncached: list[list[object]]
) -> None:
    cache = PrefixCache(limit_bytes=2**28)
    assert serve(runtime, cache, PREFIXED) == [(0, uncached[0])]
    assert serve(runtime, cache, PREFIXED) == [(ALL_BUT_THE_LAST, uncached[0])]
    assert serve(runtime, cache, FORKED) == [(640, uncached[1])]
    together = serve(runtime, cache, OTHERS[0], PREFIXED, OTHERS[1], FORKED)
    assert together[1] == (ALL_BUT_THE_LAST, uncached[0])
    assert together[3][1] == uncached[1]


@pytest.mark.nightly
def test_a_prompt_computed_in_a_batch_leaves_equal_blocks(
    runtime: IreeRuntime, uncached: list[list[object]]
) -> None:
    cache = PrefixCache(limit_bytes=2**28)
    serve(runtime, cache, *OTHERS, PREFIXED)
    assert serve(runtime, cache, PREFIXED) == [(ALL_BUT_THE_LAST, uncached[0])]


@pytest.mark.nightly
def test_cached_prompts_give_equal_answers_after_a_restart(
    runtime: IreeRuntime, uncached: list[list[object]], tmp_path: Path
) -> None:
    for expected in (0, WHOLE_CHUNKS):
        store = PrefixStore(tmp_path, bundle=bytes(32), limit_bytes=2**30)
        cache = PrefixCache(limit_bytes=2**28, store=store)
        assert serve(runtime, cache, PREFIXED) == [(expected, uncached[0])]
        store.close()
    assert cache.state().disk_hits == 7
