"""Which blocks of KV rows are known, by the prompts that they are the start of.

Blocks and their keys are those of runtime/kv_blocks.py. Whoever continues from blocks that were
found here does what they would have done after reading the tokens.

Blocks are opaque bytes. What is too much goes, least recently used first, and of a prompt its end
before its start, as a block without the ones before it is of no use. The cache knows no slots, no
requests and no runtime. It belongs to one thread; `state` may be called from another.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from server.engine.state import CacheState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runtime.interface import Rows


class Store(Protocol):
    """Where blocks outlive the process."""

    def load(self, key: bytes) -> Rows | None:
        """The block of a key, whole and as it was saved, or None."""

    def save(self, key: bytes, rows: Rows) -> None:
        """Keep a block, some time later, perhaps; returns at once."""


class PrefixCache:
    """At most `limit_bytes` of blocks, and behind them a store.

    The `pinned` blocks are always there, and count for nothing but the hits.
    """

    def __init__(
        self,
        *,
        limit_bytes: int,
        store: Store | None = None,
        pinned: Mapping[bytes, Rows] | None = None,
    ) -> None:
        self._limit = limit_bytes
        self._store = store
        self._pinned = pinned or {}
        self._blocks: OrderedDict[bytes, Rows] = OrderedDict()  # least recently used first
        self._bytes = self._hits = self._disk_hits = self._misses = self._evicted = 0

    def find(self, keys: Sequence[bytes], start: int) -> list[Rows]:
        """The blocks of keys[start], keys[start + 1], ... up to the first one that is not known.

        `keys` are those of a prompt from its first chunk on.
        """
        found: list[Rows] = []
        for key in keys[start:]:
            rows = self._get(key)
            if rows is None:
                break
            found.append(rows)
        self._hits += len(found)
        if found:
            self._touch(keys[: start + len(found)])
        return found

    def add(self, keys: Sequence[bytes], rows: Rows) -> None:
        """Keep the block of the last of `keys`, which was not known; the others come before it."""
        self._misses += 1
        self._put(keys[-1], rows)
        self._touch(keys)
        if self._store is not None:
            self._store.save(keys[-1], rows)

    def state(self) -> CacheState:
        """What is kept, and how useful it was."""
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
        rows = self._pinned.get(key)
        if rows is None:
            rows = self._blocks.get(key)
        if rows is None and self._store is not None:
            rows = self._store.load(key)
            if rows is not None:
                self._disk_hits += 1
                self._put(key, rows)
        return rows

    def _put(self, key: bytes, rows: Rows) -> None:
        if key not in self._blocks:
            self._blocks[key] = rows
            self._bytes += rows.nbytes

    def _touch(self, keys: Sequence[bytes]) -> None:
        """The blocks of a prompt have been used; its first one counts as the latest."""
        for key in reversed(keys):
            if key in self._blocks:
                self._blocks.move_to_end(key)
        while self._bytes > self._limit:
            _, rows = self._blocks.popitem(last=False)
            self._bytes -= rows.nbytes
            self._evicted += 1
