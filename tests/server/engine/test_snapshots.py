"""How many tokens of a conversation a recurrent model reads again: where its snapshots are."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING

import pytest

from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Request, Started
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prefixes.prefix_store import PrefixStore
from hearthd.server.engine.prefixes.snapshots import (
    PromptBlocks,
    branch_weights,
    planned_snapshots,
    savings,
)
from hearthd.server.engine.prompt import Prompt
from tests.fake_runtime import FakeRuntime
from tests.server.engine.chats import END, common, messages_of, prompt_of
from tests.server.engine.test_prefix_cache import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.server.engine.chats import Tokens

CHUNK, CONTEXT = 16, 4096
ENTRY = (CONTEXT + 3) * 4  # bytes of a block of the fake runtime, and about of a snapshot
AMPLE = 10**9


def prompt_with(turn_ends: Iterable[int], whole: int) -> PromptBlocks:
    return PromptBlocks(keys=(b"",) * whole, lasting=whole, turn_ends=frozenset(turn_ends))


def best(prompt: PromptBlocks, snapshots: Iterable[int], count: int) -> set[int]:
    """The last snapshot, and the others of the `count` that save most."""
    saved = savings(snapshots, branch_weights(prompt, branch=0))
    return {prompt.lasting, *sorted(saved, key=lambda each: -saved[each])[: count - 1]}


def test_snapshots_are_planned_at_turns_at_the_end_and_where_prompts_branch() -> None:
    assert planned_snapshots(prompt_with([3, 9, 20], 20), branch=5) == {3, 5, 8, 9, 16, 19, 20}
    assert planned_snapshots(prompt_with([], 2), branch=0) == {1, 2}
    assert planned_snapshots(prompt_with([], 0), branch=0) == set()


def test_a_text_without_turns_has_snapshots_in_between() -> None:
    assert planned_snapshots(prompt_with([], 40), branch=0) == {8, 16, 24, 32, 39, 40}


def test_few_snapshots_are_further_apart_the_further_they_are_from_the_end() -> None:
    prompt = prompt_with(range(1, 101), 100)
    kept = sorted(best(prompt, range(1, 101), 9))
    assert kept[-1] == 100
    gaps = [later - earlier for earlier, later in itertools.pairwise([0, *kept])]
    assert gaps[2:] == sorted(gaps[2:], reverse=True)  # after the first turn
    assert gaps[-1] <= 4


def test_a_chat_that_grows_keeps_its_snapshots_well_spread() -> None:
    """Also if a snapshot that was dropped is never there again."""
    rng = random.Random(0)
    ends = [*itertools.accumulate(rng.randrange(1, 6) for _ in range(80))]
    kept = set[int]()
    for count, end in enumerate(ends, 1):
        kept = best(prompt_with(ends[:count], end), kept | {end}, 10)
    last = prompt_with(ends, ends[-1])

    def read_again(snapshots: set[int]) -> float:
        weights = branch_weights(last, branch=0)
        before = [max((x for x in snapshots if x <= block), default=0) for block in range(end)]
        return sum(w * (b - s) for b, (w, s) in enumerate(zip(weights, before[1:], strict=True), 1))

    assert read_again(kept) < 1.5 * read_again(best(last, ends, 10))


@pytest.fixture(scope="module")
def messages() -> list[Tokens]:
    return messages_of(random.Random(0), 25, 5, 120)


def cached(prompts: Iterable[Tokens], cache: PrefixCache) -> list[int]:
    """How many tokens of each prompt a server with one slot takes from its cache."""
    runtime = FakeRuntime(vocab_size=64, context=CONTEXT, chunk=CHUNK, state_bytes=ENTRY)
    engine = Engine(runtime, eos=(END,), queue_limit=9, cache=cache, costs=None)
    engine.start()

    async def one_by_one() -> list[int]:
        counts = []
        for prompt in prompts:
            request = Request(
                prompt=Prompt(prompt), max_tokens=1, sampling=SamplingOptions(), seed=1
            )
            with engine.submit(request) as generation:
                counts += [
                    event.cached_tokens
                    async for event in generation.events()
                    if isinstance(event, Started)
                ]
        return counts

    try:
        return asyncio.run(one_by_one())
    finally:
        engine.close()


# The second one has room for the rows of the whole conversation, and for few snapshots.
@pytest.mark.parametrize("limit", [AMPLE, 130 * ENTRY])
def test_each_turn_reads_less_than_a_block_again(limit: int, messages: list[Tokens]) -> None:
    turns = [prompt_of(messages[:count]) for count in range(1, len(messages), 2)]
    counts = cached(turns, PrefixCache(limit_bytes=limit))
    for earlier, later, count in zip(turns, turns[1:], counts[1:], strict=False):
        assert common(earlier, later) - count < CHUNK


@pytest.mark.parametrize("restarted", [False, True])
def test_an_edited_turn_reads_less_than_two_blocks_before_it_again(
    restarted: bool, messages: list[Tokens]
) -> None:
    """Of a conversation that was read at once; another one has used the slot since."""
    store, whole = MemoryStore(), prompt_of(messages)
    cache = PrefixCache(limit_bytes=AMPLE, store=store)
    cached([whole, prompt_of(messages[::-1])], cache)
    for edited in range(1, len(messages), 4):
        again = PrefixCache(limit_bytes=AMPLE, store=store) if restarted else cache
        prompt = prompt_of([*messages[:edited], (60, 61), *messages[edited + 1 :]])
        (count,) = cached([prompt], again)
        assert common(whole, prompt) - count < 2 * CHUNK


def test_with_little_memory_an_edit_reads_again_about_what_follows_it(
    messages: list[Tokens],
) -> None:
    whole = prompt_of(messages)
    blocks = len(whole) // CHUNK
    for edited in range(1, len(messages) - 1, 8):
        cache = PrefixCache(limit_bytes=(blocks + 12) * ENTRY)
        prompt = prompt_of([*messages[:edited], (60, 61), *messages[edited + 1 :]])
        count = cached([whole, prompt], cache)[1]
        start = common(whole, prompt)
        assert start - count < 2 * (len(whole) - start) + 2 * CHUNK


def test_a_restart_finds_a_long_chat_on_a_full_disk(tmp_path: Path, messages: list[Tokens]) -> None:
    """Snapshots of earlier turns give way before the blocks that the next turn needs."""
    turns = [prompt_of(messages[:count]) for count in range(1, 12, 2)]
    disk = (len(turns[-2]) // CHUNK + 1) * (ENTRY + 200)
    for prompts in (turns[:-1], turns[-1:]):
        store = PrefixStore(tmp_path, bundle=bytes(32), limit_bytes=disk)
        counts = cached(prompts, PrefixCache(limit_bytes=8 * ENTRY, store=store))
        store.close()
    assert common(turns[-2], turns[-1]) - counts[-1] < CHUNK
