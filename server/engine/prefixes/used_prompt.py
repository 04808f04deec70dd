"""A prompt that the prefix cache knows, and what is still to be added of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hearthd.runtime.kv_blocks import snapshot_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hearthd.server.engine.prefixes.snapshots import PromptBlocks


@dataclass(kw_only=True, eq=False)
class UsedPrompt:
    """A prompt that is or was read.

    state_bytes  the size of a snapshot; 0 for a model without states
    used       when: how many prompts of other chats had been read; a prompt that continues the one
               before it counts less; 0.0 before the cache has looked for it
    branch     how many of its blocks earlier prompts had
    pending    the bytes of the entries that are still to be added, by key
    penalties  of its entries in the store, by key
    """

    blocks: PromptBlocks
    state_bytes: int
    used: float = 0.0
    branch: int = 0
    pending: dict[bytes, int] = field(default_factory=dict)
    penalties: dict[bytes, float] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        """Whether the cache has not looked for it."""
        return not self.used

    @property
    def end(self) -> bytes:
        """The key of its last lasting block, or else of its first one.

        A later prompt that has this block has all that others need of this one.
        """
        return self.blocks.keys[max(1, self.blocks.lasting) - 1]

    def entries(self) -> Iterator[bytes]:
        """The keys of all blocks, and of the snapshots that there could be."""
        yield from self.blocks.keys
        if self.state_bytes:
            yield from map(snapshot_key, self.blocks.keys)

    def continues(self, earlier: UsedPrompt) -> bool:
        """Whether two prompts have more in common than their first turn."""
        return self.common(earlier) > self.blocks.first_turn

    def common(self, other: UsedPrompt) -> int:
        """How many blocks two prompts begin with: a key stands for all blocks before it, too."""
        keys, other_keys = self.blocks.keys, other.blocks.keys
        low, high = 0, min(len(keys), len(other_keys))
        while low < high:
            middle = (low + high + 1) // 2
            is_common = keys[middle - 1] == other_keys[middle - 1]
            low, high = (middle, high) if is_common else (low, middle - 1)
        return low

    def plan(self, snapshots: Iterable[int], restored: int, *, block_bytes: int) -> None:
        """Expect what follows the first `restored` blocks, with snapshots after some of them."""
        blocks = self.blocks
        expected = dict.fromkeys(blocks.keys[restored:], block_bytes)
        counts = [count for count in snapshots if count > restored]
        if blocks.rest and restored < len(blocks.keys):
            expected[blocks.keys[-1]] = int(block_bytes * (blocks.rest % 1 or 1))
            counts += [len(blocks.keys)] * bool(self.state_bytes)
        self.pending = expected | {
            snapshot_key(blocks.keys[count - 1]): self.state_bytes for count in counts
        }
