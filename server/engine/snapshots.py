"""After which blocks of a prompt the states of a recurrent model are kept.

A snapshot takes as much memory as the rows of hundreds of tokens, so not every block has one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Blocks between two snapshots in a text without turns, at least.
MIN_SPACING = 8


def snapshot_blocks(turn_ends: Iterable[int], blocks: int, limit: int) -> tuple[int, ...]:
    """The whole blocks of a prompt, from 1, after which snapshots are kept: at most `limit`.

    turn_ends  the whole blocks before the end of each turn of a conversation
    blocks     the whole blocks of the prompt

    The most important ones are the last in the result. In order of importance:

    - the last block, from which the next turn is read;
    - the block before it, as templates write the end of a prompt in another way when an answer
      follows;
    - the last block before the end of the first turn, after which other conversations begin;
    - for edits, the blocks before other ends of turns, and some between them: further apart the
      further they are from the end, where few are kept (see `_ranked`).
    """
    ends = {end for end in turn_ends if 0 < end <= blocks}
    first = [min(ends)] if ends else []
    most_important = [count for count in (blocks, blocks - 1, *first) if count > 0]
    others = ends.union(filter(_is_between, range(1, blocks + 1)))
    chosen = dict.fromkeys([*most_important, *_ranked(sorted(others), blocks)])
    return tuple(reversed([*chosen][:limit]))


def _ranked(candidates: list[int], blocks: int) -> list[int]:
    """Ascending blocks, the most important first: by distance from the end through a power of two.

    It is the largest one of which a multiple is after the candidate before, so it stays the same
    when the prompt grows: what a longer prompt needs, the shorter one has kept.
    """
    powers = {
        candidate: 1 << ((before ^ candidate).bit_length() - 1)
        for before, candidate in pairwise([0, *candidates])
    }
    return sorted(candidates, key=lambda each: ((blocks + 1 - each) / powers[each], -each))


def _is_between(count: int) -> bool:
    """Whether a block has a snapshot where no turn ends: further apart the longer the prompt is."""
    spacing = max(MIN_SPACING, 1 << max(0, count.bit_length() - 3))
    return count % spacing == 0
