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
from hearthd.server.engine.prefix_cache import PrefixCache
from hearthd.server.engine.prefix_store import PrefixStore
from hearthd.server.engine.prompt import Prompt
from hearthd.server.engine.snapshots import snapshot_blocks
from tests.fake_runtime import FakeRuntime
from tests.server.engine.test_prefix_cache import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    Tokens = tuple[int, ...]

END, HEAD, ANSWER = 1, 2, 3  # the tokens around messages; others are texts
CHUNK, CONTEXT = 16, 4096
ENTRY = (CONTEXT + 3) * 4  # bytes of a block of the fake runtime, and about those of a snapshot
AMPLE = 10**9


def test_the_last_blocks_and_the_end_of_the_first_turn_are_the_most_important() -> None:
    assert snapshot_blocks([3, 9, 20], 20, 3) == (3, 19, 20)
    assert snapshot_blocks([], 2, 4) == (1, 2)
    assert snapshot_blocks([], 0, 4) == ()


def test_few_snapshots_are_further_apart_the_further_they_are_from_the_end() -> None:
    every = snapshot_blocks(range(1, 101), 100, AMPLE)
    assert sorted(every) == [*range(1, 101)]
    assert sorted(snapshot_blocks(range(1, 101), 100, 10)) == [
        1, 32, 64, 80, 88, 92, 96, 98, 99, 100,
    ]  # fmt: skip


def test_a_prompt_that_grows_has_kept_the_snapshots_that_it_needs() -> None:
    rng = random.Random(0)
    ends = [*itertools.accumulate(rng.randrange(1, 6) for _ in range(80))]
    kept, missing, before = set[int](), 0, 0
    for count, end in enumerate(ends, 1):
        needed = set(snapshot_blocks(ends[:count], end, 10))
        missing += sum(block <= before for block in needed - kept)
        kept, before = needed, end
    assert missing < 0.05 * 10 * len(ends)


def test_a_text_without_turns_has_snapshots_in_between() -> None:
    assert sorted(snapshot_blocks([], 40, AMPLE)) == [8, 16, 24, 32, 39, 40]


@pytest.fixture(scope="module")
def messages() -> list[Tokens]:
    rng = random.Random(0)
    return [tuple(rng.choices(range(4, 60), k=rng.randrange(5, 120))) for _ in range(25)]


def prompt_of(messages: Sequence[Tokens]) -> Tokens:
    """Messages, and what a template writes before an answer: not how an answer begins later."""
    text = (token for message in messages for token in (HEAD, *message, END))
    return (*text, HEAD, ANSWER, ANSWER, ANSWER)


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


def common(first: Tokens, second: Tokens) -> int:
    """How many tokens two prompts begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


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
