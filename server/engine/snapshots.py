"""After which blocks of a prompt the states of a recurrent model are kept.

A snapshot takes as much memory as the rows of hundreds of tokens, so not every block has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Blocks between two snapshots in a text without turns, at least.
MIN_SPACING = 8


def snapshot_blocks(turn_ends: Iterable[int], blocks: int, limit: int) -> tuple[int, ...]:
    """After which of the whole blocks of a prompt, from 1, snapshots are kept: at most `limit`.

    turn_ends  the whole blocks before the end of each turn of a conversation
    blocks     the whole blocks of the prompt

    The most important one is the last: the last block, from which the next turn is read; the one
    before it, as templates write the end of a prompt in another way when an answer follows; and
    that before the end of the first turn, after which other conversations begin. Of the others, at
    the ends of turns and at some blocks between, for edits, those are more important that are 1, 2,
    4, 8, ... before the end, then those that are the sum of two of these numbers before it, and so
    on: the fewer there are, the further apart they are the further they are from the end.
    """
    ends = {end for end in turn_ends if 0 < end <= blocks}
    first = [min(ends)] if ends else []
    most_important = [count for count in (blocks, blocks - 1, *first) if count > 0]
    others = ends.union(filter(_is_between, range(1, blocks + 1))).difference(most_important)
    numbered = enumerate(sorted(others, reverse=True), 1)
    ranked = sorted(numbered, key=lambda pair: (pair[0].bit_count(), pair[0]))
    chosen = dict.fromkeys([*most_important, *(count for _, count in ranked)])
    return tuple(reversed([*chosen][:limit]))


def _is_between(count: int) -> bool:
    """Whether a block has a snapshot where no turn ends: further apart the longer the prompt is."""
    spacing = max(MIN_SPACING, 1 << max(0, count.bit_length() - 3))
    return count % spacing == 0
