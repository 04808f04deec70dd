"""A prompt that the prefix cache knows, and what is still to be added of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hearthd.runtime.kv_blocks import snapshot_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hearthd.server.engine.snapshots import PromptBlocks


@dataclass(kw_only=True, eq=False)
class UsedPrompt:
    """A prompt that is or was read.

    state_bytes  the size of a snapshot; 0 for a model without states
    used       when: how many prompts of other chats had been read; a prompt that continues the one
               before it counts less; 0.0 before the cache has looked for it
    branch     how many of its blocks earlier prompts had
    edited_at  how many of its blocks a later prompt has that edits it; None if none does
    pending    the bytes of the entries that are still to be added, by key
    penalties  of its entries in the store, by key
    """

    blocks: PromptBlocks
    state_bytes: int
    used: float = 0.0
    branch: int = 0
    edited_at: int | None = None
    pending: dict[bytes, int] = field(default_factory=dict)
    penalties: dict[bytes, float] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        """Whether the cache has not looked for it."""
        return not self.used

    def continues(self, earlier: UsedPrompt) -> bool:
        """Whether two prompts have more in common than their first turn."""
        return self._common(earlier) > self.blocks.first_turn

    def replaces(self, earlier: UsedPrompt) -> bool:
        """Whether this prompt has all that later ones need of an earlier one, which it may edit."""
        common = self._common(earlier)
        if common == len(earlier.blocks.keys) or common >= max(1, earlier.blocks.lasting):
            return True
        if self.continues(earlier):
            earlier.edited_at = common
        return False

    def _common(self, earlier: UsedPrompt) -> int:
        """How many blocks two prompts begin with: a key stands for all blocks before it, too."""
        keys, earlier_keys = self.blocks.keys, earlier.blocks.keys
        low, high = 0, min(len(keys), len(earlier_keys))
        while low < high:
            middle = (low + high + 1) // 2
            is_common = keys[middle - 1] == earlier_keys[middle - 1]
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
