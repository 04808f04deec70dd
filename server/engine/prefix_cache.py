"""The prefix cache: blocks of KV rows of earlier prompts, so that later ones need not be read.

Blocks, snapshots and their keys are those of runtime/kv_blocks.py. A slot whose blocks were
restored computes the same bits as one that has read the tokens.

Blocks are opaque bytes. The least recently used ones are evicted first, and of one prompt the last
ones first, because a block is useless without the ones before it. The snapshots that a prompt may
need are evicted before its blocks, the least important ones first. The cache knows no slots, no
requests and no runtime. It belongs to one thread; `state` may be called from any.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hearthd.runtime.kv_blocks import snapshot_key
from hearthd.server.engine.state import CacheState
from hearthd.server.fault_isolation import contained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.runtime.interface import Rows


# Snapshots of a prompt that are kept, even if they fill more than half of the memory.
MIN_SNAPSHOTS = 4


class Store(Protocol):
    """Blocks that outlive the process."""

    def load(self, key: bytes) -> Rows | None:
        """The block of a key, or None if the store does not have it complete and unchanged."""

    def save(self, key: bytes, rows: Rows) -> None:
        """Write a block later, if there is time; returns at once."""

    def use(self, keys: Sequence[bytes]) -> None:
        """Mark blocks as used later, the most important last; those that it lacks do not count."""


class Found(NamedTuple):
    """What the cache has of a prompt.

    blocks  consecutive blocks
    states  the snapshot after the last of them, if the model has states
    known   how many blocks are there without regard to snapshots
    """

    blocks: list[Rows]
    states: Rows | None
    known: int


class PrefixCache:
    """At most `limit_bytes` of blocks in memory, and a store that has more."""

    def __init__(self, *, limit_bytes: int, store: Store | None = None) -> None:
        self._limit = limit_bytes
        self.store = store
        self._blocks: OrderedDict[bytes, Rows] = OrderedDict()  # least recently used first
        self._bytes = self._hits = self._disk_hits = self._misses = self._evicted = 0
        self._keys: tuple[bytes, ...] = ()

    def max_snapshots(self, state_bytes: int) -> int:
        """How many snapshots of a size, in bytes, are kept of a prompt: half of the memory."""
        return max(MIN_SNAPSHOTS, self._limit // (2 * state_bytes))

    def find(
        self,
        keys: Sequence[bytes],
        start: int,
        *,
        with_states: bool = False,
        snapshots: Sequence[int] = (),
    ) -> Found:
        """The blocks of keys[start], keys[start + 1], ... up to the first one that is missing.

        `keys` are those of a prompt from its first chunk on. With states, the blocks up to the
        last one that has a snapshot. `snapshots` says after which blocks of the prompt they may
        be needed, the most important last.
        """
        blocks: list[Rows] = []
        for key in keys[start:]:
            rows = self._get(key)
            if rows is None:
                break
            blocks.append(rows)
        known, states = len(blocks), None
        while with_states and blocks and states is None:
            states = self._get(snapshot_key(keys[start + len(blocks) - 1]))
            if states is None:
                blocks.pop()
        self._hits += len(blocks)
        if blocks:
            used = start + len(blocks)
            self._touch(keys[:used], snapshots, has_snapshot=states is not None)
        return Found(blocks, states, known)

    def add(
        self,
        keys: Sequence[bytes],
        rows: Rows,
        *,
        states: Rows | None = None,
        is_whole: bool = True,
        snapshots: Sequence[int] = (),
    ) -> None:
        """Add the missing block of the last of `keys`; the other keys are those before it.

        `states` are the snapshot after the block; for `snapshots` see `find`. Only whole blocks
        outlive the process: others serve nothing but the same prompt again.
        """
        self._misses += 1
        added = {keys[-1]: rows}
        if states is not None:
            added[snapshot_key(keys[-1])] = states
        for key, entry in added.items():
            self._put(key, entry)
        self._touch(keys, snapshots, has_snapshot=states is not None)
        if self.store is not None and is_whole:
            for key, entry in added.items():
                self.store.save(key, entry)

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

    def _touch(
        self, keys: Sequence[bytes], snapshots: Sequence[int], *, has_snapshot: bool
    ) -> None:
        """Mark the blocks of a prompt as used, the first one last; evict down to the limit.

        The store is told, too, as it evicts what was not used for long.

        Its snapshots are marked before its blocks, except the one after the last of these blocks,
        if there is one: it is marked last.
        """
        counts = [count for count in snapshots if count <= len(keys)]
        kept = [snapshot_key(keys[count - 1]) for count in counts]
        last = [snapshot_key(keys[-1])] if has_snapshot else []
        used = [*kept, *reversed(keys), *last]
        if self.store is not None:
            self.store.use(used)
        for key in used:
            if key in self._blocks:
                self._blocks.move_to_end(key)
        while self._bytes > self._limit:
            _, rows = self._blocks.popitem(last=False)
            self._bytes -= rows.nbytes
            self._evicted += 1
        self._keys = tuple(self._blocks)
