"""The prefix cache: which blocks are found, and which are evicted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest.mock import Mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hearthd.runtime.kv_blocks import block_keys
from hearthd.server.engine.prefixes import prefix_cache
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prefixes.retention import Retention
from hearthd.server.engine.prefixes.snapshots import PromptBlocks
from hearthd.server.engine.prefixes.used_prompt import UsedPrompt
from hearthd.server.engine.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest

    from hearthd.runtime.interface import Rows

SIZE = 10  # bytes of a block


def keys_of(tokens: Iterable[int], chunk: int) -> tuple[bytes, ...]:
    return block_keys(part.content for part in Prompt(tuple(tokens)).chunks(chunk))


def rows_of(key: bytes) -> Rows:
    return np.frombuffer(key[:SIZE], np.uint8)


def used(keys: tuple[bytes, ...], state_bytes: int = 0, rest: float = 0.0) -> UsedPrompt:
    """A prompt of whole chunks, or one whose last block is shorter."""
    blocks = PromptBlocks(keys=keys, lasting=len(keys) - (rest > 0), rest=rest)
    return UsedPrompt(blocks=blocks, state_bytes=state_bytes)


def add_all(cache: PrefixCache, keys: tuple[bytes, ...]) -> None:
    """Do what an engine does with a prompt: restore the blocks that are cached and add the rest."""
    prompt = used(keys)
    cached = cache.find(prompt, 0).blocks
    for count in range(len(cached) + 1, len(keys) + 1):
        cache.add(prompt, count, rows_of(keys[count - 1]))


def count_found(cache: PrefixCache, keys: tuple[bytes, ...]) -> int:
    blocks = cache.find(used(keys), 0).blocks
    for key, rows in zip(keys, blocks, strict=False):
        np.testing.assert_array_equal(rows, rows_of(key))
    return len(blocks)


@dataclass
class MemoryStore:
    """A store that keeps everything."""

    blocks: dict[bytes, Rows] = field(default_factory=dict)

    def load(self, key: bytes) -> Rows | None:
        return self.blocks.get(key)

    def save(self, key: bytes, rows: Rows, penalty: float = 0.0) -> None:  # noqa: ARG002
        self.blocks[key] = rows

    def use(self, penalties: Mapping[bytes, float]) -> None:
        """Nothing: it evicts nothing."""


def test_the_longest_cached_prefix_is_found() -> None:
    cache = PrefixCache(limit_bytes=10 * SIZE)
    add_all(cache, keys_of([1, 2, 3], 1))
    assert count_found(cache, keys_of([1, 2, 3, 4], 1)) == 3
    assert count_found(cache, keys_of([1, 2, 9], 1)) == 2
    assert count_found(cache, keys_of([2, 3], 1)) == 0
    assert len(cache.find(used(keys_of([1, 2, 3], 1)), 2).blocks) == 1
    state = cache.state()
    assert (state.blocks, state.bytes, state.hits, state.misses) == (3, 3 * SIZE, 6, 3)


def test_the_least_recently_used_blocks_are_evicted_last_blocks_first() -> None:
    cache = PrefixCache(limit_bytes=4 * SIZE)
    old, new = keys_of([1, 2], 1), keys_of([5, 6], 1)
    add_all(cache, old)
    add_all(cache, new)
    assert count_found(cache, old) == 2
    add_all(cache, keys_of([7], 1))
    assert (count_found(cache, new), count_found(cache, old)) == (1, 2)
    assert cache.state().evicted == 1


def test_of_a_prompt_that_does_not_fit_the_first_blocks_are_kept() -> None:
    cache = PrefixCache(limit_bytes=3 * SIZE)
    keys = keys_of(range(8), 1)
    add_all(cache, keys)
    assert count_found(cache, keys) == 3


prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=12)


@given(prompts, st.integers(0, 6))
def test_the_limit_holds_and_no_block_is_kept_without_those_before_it(
    prompts: list[list[int]], limit: int
) -> None:
    cache = PrefixCache(limit_bytes=limit * SIZE)
    chains = [keys_of(prompt, 1) for prompt in prompts]
    for chain in chains:
        add_all(cache, chain)
        assert cache.state().bytes == cache.state().blocks * SIZE <= limit * SIZE
        kept = cache._blocks.keys()
        assert kept == {k for c in chains for k in c[: count_found(cache, c)]}


def test_evicted_blocks_are_loaded_from_the_store() -> None:
    store = MemoryStore()
    keys = keys_of([1, 2, 3], 1)
    add_all(PrefixCache(limit_bytes=9 * SIZE, store=store), keys)
    again = PrefixCache(limit_bytes=2 * SIZE, store=store)
    assert count_found(again, keys) == 3
    assert count_found(again, keys) == 3
    state = again.state()
    assert (state.hits, state.disk_hits, state.blocks) == (6, 4, 2)


def test_blocks_from_the_store_are_not_saved_again() -> None:
    store = MemoryStore()
    keys = keys_of([1, 2], 1)
    add_all(PrefixCache(limit_bytes=9 * SIZE, store=store), keys)
    store.save = lambda *_: 1 / 0  # type: ignore[method-assign, assignment]
    add_all(PrefixCache(limit_bytes=9 * SIZE, store=store), keys)


def test_the_rest_of_a_prompt_is_not_stored() -> None:
    store = MemoryStore()
    keys = keys_of([1, 2, 3], 2)
    cache = PrefixCache(limit_bytes=9 * SIZE, store=store)
    prompt = used(keys, rest=0.5)
    cache.find(prompt, 0)
    for count in (1, 2):
        cache.add(prompt, count, rows_of(keys[count - 1]))
    assert count_found(cache, keys) == 2
    assert count_found(PrefixCache(limit_bytes=9 * SIZE, store=store), keys) == 1


def test_a_block_that_is_added_twice_counts_once() -> None:
    """As when two slots read the same prompt at the same time."""
    cache = PrefixCache(limit_bytes=3 * SIZE)
    keys = keys_of([1, 2, 3], 1)
    prompts = [used(keys), used(keys)]
    for prompt in prompts:
        assert not cache.find(prompt, 0).blocks
    for prompt in prompts:
        for count in (1, 2, 3):
            cache.add(prompt, count, rows_of(keys[count - 1]))
    state = cache.state()
    assert (state.blocks, state.bytes, state.evicted) == (3, 3 * SIZE, 0)
    assert count_found(cache, keys) == 3


def test_blocks_are_found_up_to_the_last_snapshot_and_snapshots_are_evicted_and_stored() -> None:
    keys, store = keys_of([1, 2, 3, 4], 1), MemoryStore()
    cache = PrefixCache(limit_bytes=6 * SIZE, store=store)
    prompt = used(keys, SIZE)
    cache.find(prompt, 0)
    for count in range(1, 5):
        states = rows_of(keys[count - 1][::-1]) if count in (2, 3) else None
        cache.add(prompt, count, rows_of(keys[count - 1]), states=states)
    found = cache.find(used(keys, SIZE), 1)
    assert len(found.blocks) == 2
    assert found.states is not None
    np.testing.assert_array_equal(found.states, rows_of(keys[2][::-1]))
    assert cache.find(used(keys, SIZE), 3) == ([], None)
    other = used(keys_of([9], 1), SIZE)
    cache.find(other, 0)
    cache.add(other, 1, rows_of(keys[0]), states=rows_of(keys[0]))
    assert cache.state().bytes <= 6 * SIZE
    assert len(cache.find(used(keys, SIZE), 0).blocks) == 3  # the block after it has no snapshot
    again = PrefixCache(limit_bytes=9 * SIZE, store=store)
    assert len(again.find(used(keys, SIZE), 0).blocks) == 3


def test_prompts_that_are_given_up_unread_are_forgotten() -> None:
    cache = PrefixCache(limit_bytes=64 * SIZE)
    add_all(cache, keys_of([1000], 1))  # the cache learns how large a block is
    for token in range(1000):
        cache.find(used(keys_of([token], 1)), 0)
    assert len(cache._prompts) <= 65


def test_many_short_prompts_are_not_looked_at_for_each_one_that_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose = Mock(side_effect=Retention)
    monkeypatch.setattr(prefix_cache, "Retention", choose)
    cache = PrefixCache(limit_bytes=640 * SIZE)
    for token in range(1280):
        add_all(cache, keys_of([token], 1))
    assert cache.state().blocks == 640
    assert 0 < choose.call_count <= 64
    assert count_found(cache, keys_of([1279], 1)) == 1
