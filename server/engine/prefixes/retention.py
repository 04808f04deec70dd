"""What the prefix cache keeps: one order for the blocks and snapshots of all prompts.

An entry counts as used when its prompt was, less a penalty. Time is counted in prompts. The penalty
is the memory that an entry takes, in blocks, for each block that later prompts need not read again
because of it: 1 for a block of a model without states. The blocks of a prompt and the snapshot from
which the next turn is read save all of it together; other snapshots save a part of it, if a later
prompt differs there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from hearthd.runtime.kv_blocks import snapshot_key
from hearthd.server.engine.prefixes.snapshots import branch_weights, savings
from hearthd.server.engine.prefixes.used_prompt import UsedPrompt

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from hearthd.server.engine.prefixes.snapshots import PromptBlocks

# Chats that take turns: what their next turns need is kept before anything else.
CHATS_IN_TURNS = 8
# How much a prompt counts that continues the one before it: agents call tools many times in a turn.
CONTINUED = 1 / 8
# How often the same prompt comes again, in relation to one that continues it.
_SAME_PROMPT = 1 / 8
# How much larger the penalties are of a prompt that a later one edits.
_EDITED = 32.0


@dataclass(frozen=True, kw_only=True)
class _Item:
    """Entries that are kept together; `count` blocks, or the snapshot after them."""

    prompt: UsedPrompt
    count: int
    entries: tuple[bytes, ...]
    used: float
    is_end: bool = False


def stored_penalties(
    prompt: UsedPrompt, snapshots: Iterable[int], ratio: float
) -> dict[bytes, float]:
    """The penalties of the entries of a prompt in a store, by key; later blocks have larger ones.

    `ratio` is the size of a snapshot in blocks.
    """
    blocks = prompt.blocks
    if not blocks.lasting:
        return {}
    by_snapshot = _penalties(blocks, prompt.branch, [*snapshots, blocks.lasting], ratio)
    end = by_snapshot[blocks.lasting]
    rows = {
        key: end + index / (1000 * blocks.lasting)
        for index, key in enumerate(blocks.keys[: blocks.lasting])
    }
    states = {
        snapshot_key(blocks.keys[count - 1]): penalty for count, penalty in by_snapshot.items()
    }
    return {**rows, **(states if ratio else {})}


def _penalties(
    prompt: PromptBlocks, branch: int, snapshots: Iterable[int], ratio: float
) -> dict[int, float]:
    """By snapshot, in prompts; the blocks have the penalty of the last snapshot."""
    counts = sorted({*snapshots})
    if not counts:
        return {}
    saved = savings(counts, branch_weights(prompt, branch)) if ratio else {}
    others = {count: max(float(CHATS_IN_TURNS), ratio / blocks) for count, blocks in saved.items()}
    return {**others, counts[-1]: 1 + ratio / counts[-1]}


class Retention:
    """Chooses what is kept of prompts, and in which order the rest is evicted.

    sizes  in bytes, of the entries in memory and of those that are still to be added
    ratio  the size of a snapshot in blocks; 0 for a model without states
    """

    def __init__(
        self, prompts: Iterable[UsedPrompt], *, sizes: Mapping[bytes, int], ratio: float
    ) -> None:
        self._sizes = sizes
        self._ratio = ratio
        by_use = sorted(prompts, key=lambda prompt: prompt.used)
        self._latest = {key: prompt for prompt in by_use for key in prompt.blocks.keys}
        self._snapshots = {prompt: self._available(prompt) for prompt in by_use}
        items = [item for prompt in reversed(by_use) for item in self._items(prompt)]
        self._order = sorted(items, key=lambda item: -item.used)
        self.kept = set[bytes]()
        self._ends = dict[UsedPrompt, int]()  # blocks that are kept, by prompt

    def choose(self, limit: int) -> None:
        """Fill `kept` with entries that take at most `limit` bytes."""
        room = limit
        for item in self._order:
            if item.is_end:
                room -= self._keep_longest(item, room)
            elif self._ends.get(item.prompt, 0) >= item.count:
                room -= self._keep(item.entries, room)

    def eviction_order(self, entries: Iterable[bytes]) -> Iterator[bytes]:
        """All entries in the order of their eviction: those that are kept come last."""
        best = dict[bytes, int]()
        for index, item in enumerate(self._order):
            for key in item.entries:
                best.setdefault(key, index)
        yield from (key for key in entries if key not in best)
        order = [
            key
            for index, item in reversed([*enumerate(self._order)])
            for key in reversed(item.entries)
            if best[key] == index
        ]
        yield from sorted(order, key=self.kept.__contains__)

    def holders(self, entries: Collection[bytes]) -> set[UsedPrompt]:
        """The prompts that have some of the entries, which no prompt before them has."""
        found, seen = set[UsedPrompt](), set[bytes]()
        for item in self._order:
            new = {key for key in item.entries if key in entries} - seen
            if new:
                found.add(item.prompt)
                seen |= new
        return found

    def _edited_at(self, prompt: UsedPrompt) -> int | None:
        """How many of its blocks a later prompt has that edits it; None if none does."""
        keys, common = prompt.blocks.keys, 0
        while common < len(keys) and (later := self._latest[keys[common]]) is not prompt:
            common = later.common(prompt)
            if common > later.blocks.first_turn:
                return common
        return None

    def _available(self, prompt: UsedPrompt) -> list[int]:
        """After how many blocks reading can go on, ascending."""
        keys = prompt.blocks.keys[: prompt.blocks.lasting]
        length = next((i for i, key in enumerate(keys) if key not in self._sizes), len(keys))
        return [
            count
            for count in range(1, length + 1)
            if not self._ratio or snapshot_key(keys[count - 1]) in self._sizes
        ]

    def _items(self, prompt: UsedPrompt) -> Iterator[_Item]:
        blocks, snapshots = prompt.blocks, self._snapshots[prompt]
        edited_at = self._edited_at(prompt)
        factor = 1.0 if edited_at is None else _EDITED
        for count, penalty in _penalties(blocks, prompt.branch, snapshots, self._ratio).items():
            is_end = count == snapshots[-1]
            if is_end and edited_at is not None:
                penalty = 1 + self._ratio / max(1, count - edited_at)
            yield _Item(
                prompt=prompt,
                count=count,
                entries=self._until(prompt, count) if is_end else self._snapshot(prompt, count),
                used=prompt.used - factor * penalty,
                is_end=is_end,
            )
        rest = blocks.keys[blocks.lasting :]
        entries = (*rest, *map(snapshot_key, rest[-1:])) if self._ratio else rest
        if entries and all(key in self._sizes for key in entries):
            penalty = max(1.0, (blocks.rest + self._ratio) / (_SAME_PROMPT * blocks.rest))
            yield _Item(
                prompt=prompt,
                count=blocks.lasting,
                entries=entries,
                used=prompt.used - factor * penalty,
            )

    def _until(self, prompt: UsedPrompt, count: int) -> tuple[bytes, ...]:
        return (*prompt.blocks.keys[:count], *self._snapshot(prompt, count))

    def _snapshot(self, prompt: UsedPrompt, count: int) -> tuple[bytes, ...]:
        return (snapshot_key(prompt.blocks.keys[count - 1]),) if self._ratio else ()

    def _missing(self, entries: Iterable[bytes]) -> int:
        return sum(self._sizes[key] for key in entries if key not in self.kept)

    def _keep(self, entries: Collection[bytes], room: int) -> int:
        """Keep entries if they fit; returns the bytes that they take."""
        size = self._missing(entries)
        if size > room:
            return 0
        self.kept.update(entries)
        return size

    def _keep_longest(self, item: _Item, room: int) -> int:
        """Keep the blocks of a prompt up to the last snapshot with which they fit."""
        keys = item.prompt.blocks.keys[: item.count]
        sizes = [0, *accumulate(self._missing((key,)) for key in keys)]
        for count in reversed(self._snapshots[item.prompt]):
            snapshot = self._snapshot(item.prompt, count)
            if sizes[count] + self._missing(snapshot) <= room:
                self._ends[item.prompt] = count
                return self._keep((*keys[:count], *snapshot), room)
        return 0
