"""The prefix cache: blocks of KV rows of earlier prompts, so that later ones need not be read.

Blocks, snapshots and their keys are described in runtime/kv_blocks.py. A slot whose blocks were
restored computes the same bits as one that has read the tokens.

Blocks are opaque bytes. In which order they are evicted is decided when a prompt comes, for all
that will be read of it: see retention.py. That looks at all prompts, so of many short ones it is
not decided for each. The cache knows no slots, no requests and no runtime. It belongs to one
thread; `state` and `keys` may be called from any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from hearthd.runtime.kv_blocks import snapshot_key
from hearthd.server.engine.prefixes.retention import CONTINUED, Retention, stored_penalties
from hearthd.server.engine.prefixes.snapshots import planned_snapshots
from hearthd.server.engine.state import CacheState
from hearthd.server.fault_isolation import contained

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.runtime.interface import Rows
    from hearthd.server.engine.prefixes.used_prompt import UsedPrompt

# What is evicted is decided again when the prompts since take such a part of the memory.
_DECIDED_AGAIN = 1 / 64


class Store(Protocol):
    """Blocks that outlive the process.

    An entry with a penalty is deleted as if it had been used that many prompts earlier.
    """

    def load(self, key: bytes) -> Rows | None:
        """The block of a key, or None if the store does not have it complete and unchanged."""

    def save(self, key: bytes, rows: Rows, penalty: float = 0.0) -> None:
        """Write a block later, if there is time; returns at once."""

    def use(self, penalties: Mapping[bytes, float]) -> None:
        """Mark blocks as used later; those that it lacks do not count."""


class Found(NamedTuple):
    """What the cache has of a prompt.

    blocks  consecutive blocks
    states  the snapshot after the last of them, if the model has states
    """

    blocks: list[Rows]
    states: Rows | None


class PrefixCache:
    """At most `limit_bytes` of blocks in memory, and a store that has more."""

    def __init__(self, *, limit_bytes: int, store: Store | None = None) -> None:
        self._limit = limit_bytes
        self.store = store
        self._blocks: dict[bytes, Rows] = {}
        self._block_bytes = 1  # of a whole chunk
        self._prompts: dict[bytes, UsedPrompt] = {}  # by their ends, the latest last
        self._used = 0.0
        self._evicted_next: dict[bytes, None] = {}  # the last one first
        self._refused: set[bytes] = set()  # evicted at once if they are added
        self._planned = 0  # bytes of prompts since that was decided
        self._bytes = self._hits = self._disk_hits = self._misses = self._evicted = 0
        self._keys: tuple[bytes, ...] = ()

    def find(self, prompt: UsedPrompt, start: int) -> Found:
        """The blocks of a prompt after the first `start` ones, up to the first that is missing.

        With states, the blocks up to the last one that has a snapshot.
        """
        keys = prompt.blocks.keys
        blocks: list[Rows] = []
        for key in keys[start:]:
            rows = self._get(key)
            if rows is None:
                break
            blocks.append(rows)
        known, states = start + len(blocks), None
        while prompt.state_bytes and blocks and states is None:
            states = self._get(snapshot_key(keys[start + len(blocks) - 1]))
            if states is None:
                blocks.pop()
        self._hits += len(blocks)
        if prompt.is_new:
            self._register(prompt, known, start + len(blocks))
        self._evict(prompt)
        return Found(blocks, states)

    def needs_states(self, prompt: UsedPrompt, count: int) -> bool:
        """Whether a snapshot after the first `count` blocks is worth its memory."""
        return snapshot_key(prompt.blocks.keys[count - 1]) in prompt.pending

    def add(
        self, prompt: UsedPrompt, count: int, rows: Rows, *, states: Rows | None = None
    ) -> None:
        """Add the missing block after the first `count - 1` ones, and the snapshot after it.

        Only lasting blocks outlive the process: others serve nothing but the same prompt again.
        """
        self._misses += 1
        key = prompt.blocks.keys[count - 1]
        is_lasting = count <= prompt.blocks.lasting
        if is_lasting:
            self._block_bytes = rows.nbytes
        added = {key: rows}
        if states is not None:
            added[snapshot_key(key)] = states
        for each, entry in added.items():
            prompt.pending.pop(each, None)
            self._put(each, entry)
            if self.store is not None and is_lasting:
                self.store.save(each, entry, prompt.penalties.get(each, 0.0))
        self._evict(prompt)

    def keys(self) -> tuple[bytes, ...]:
        """The keys of all blocks in memory; for any thread."""
        return self._keys

    def state(self) -> CacheState:
        """Size and hits."""
        return CacheState(
            blocks=len(self._blocks),
            bytes=self._bytes,
            limit_bytes=self._limit,
            hits=self._hits,
            disk_hits=self._disk_hits,
            misses=self._misses,
            evicted=self._evicted,
        )

    def _get(self, key: bytes) -> Rows | None:
        rows = self._blocks.get(key)
        if rows is None and self.store is not None:
            with contained("reading a block of the prefix cache"):
                rows = self.store.load(key)
            if rows is not None:
                self._disk_hits += 1
                self._put(key, rows)
        return rows

    def _put(self, key: bytes, rows: Rows) -> None:
        if key not in self._blocks:
            self._blocks[key] = rows
            self._bytes += rows.nbytes
            if key in self._refused:
                self._evicted_next[key] = None

    def _register(self, prompt: UsedPrompt, known: int, restored: int) -> None:
        """Plan for all that will be read of a prompt; it continues or edits earlier ones."""
        latest = next(reversed(self._prompts.values()), None)
        self._used += CONTINUED if latest and prompt.continues(latest) else 1.0
        prompt.used, prompt.branch = self._used, known
        for key in prompt.blocks.keys:
            self._prompts.pop(key, None)
        self._prompts[prompt.end] = prompt
        planned = planned_snapshots(prompt.blocks, known) if prompt.state_bytes else set[int]()
        prompt.plan(planned, restored, block_bytes=self._block_bytes)
        for key in prompt.pending.keys() & self._blocks.keys():
            del prompt.pending[key]
        for key in prompt.entries():
            self._evicted_next.pop(key, None)
        size = sum(prompt.pending.values())
        self._planned += size
        is_full = self._bytes + size > self._limit and self._planned >= self._limit * _DECIDED_AGAIN
        if is_full or self._planned > self._limit:  # many prompts may have been given up unread
            self._choose(prompt)
        if self.store is not None:
            prompt.penalties = stored_penalties(
                prompt, planned, prompt.state_bytes / self._block_bytes
            )
            self.store.use(prompt.penalties)

    def _choose(self, prompt: UsedPrompt) -> None:
        """Decide in which order to evict, where `prompt` is being read."""
        sizes = {**prompt.pending, **{key: rows.nbytes for key, rows in self._blocks.items()}}
        ratio = prompt.state_bytes / self._block_bytes
        retention = Retention(self._prompts.values(), sizes=sizes, ratio=ratio)
        retention.choose(self._limit)
        holders = retention.holders(self._blocks)
        self._prompts = {p.end: p for p in self._prompts.values() if p is prompt or p in holders}
        order = [key for key in retention.eviction_order(sizes) if key in self._blocks]
        self._evicted_next = dict.fromkeys(reversed(order))
        self._refused = prompt.pending.keys() - retention.kept
        self._planned = 0
        if self.store is None:  # what the memory cannot keep is not made
            for key in self._refused:
                del prompt.pending[key]

    def _evict(self, prompt: UsedPrompt) -> None:
        """Make room; `prompt` is being read, and a decision may have forgotten it meanwhile."""
        self._prompts.setdefault(prompt.end, prompt)
        while self._bytes > self._limit:
            if not self._evicted_next:
                self._choose(prompt)
            key, _ = self._evicted_next.popitem()
            self._bytes -= self._blocks.pop(key).nbytes
            self._evicted += 1
        self._keys = tuple(self._blocks)
