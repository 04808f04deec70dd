"""After which blocks of a prompt the states of a recurrent model are kept, and what each one saves.

A snapshot takes as much memory as the rows of hundreds of tokens, so not every block has one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Blocks between two snapshots in a text without turns, at least.
MIN_SPACING = 8
# How often a later prompt differs from this one at such a place, in relation to one that continues
# the prompt: after a turn or elsewhere in it, by an edit; after the first turn, in another
# conversation; where this prompt differs from earlier ones; within the last block, where templates
# write the end of a prompt in another way when an answer follows.
_EDIT, _OTHER_CHAT, _BRANCH, _LAST_BLOCK = 1 / 4, 1 / 4, 1 / 4, 1 / 16
# Edits elsewhere than after a turn, in relation to those after one.
_WITHIN_TURN = 1 / 8


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptBlocks:
    """A prompt as the prefix cache sees it.

    keys       of its blocks; the last block may be shorter than a chunk
    lasting    how many of them later prompts can have, too: whole chunks, but not the last one if
               it ends in what a template writes before an answer
    rest       the size of the others, in chunks; 0.0 if there are none
    turn_ends  the lasting blocks before the end of each turn of a conversation
    """

    keys: tuple[bytes, ...]
    lasting: int
    rest: float = 0.0
    turn_ends: frozenset[int] = frozenset()

    @property
    def first_turn(self) -> int:
        """The lasting blocks before the end of the first turn; 0 if no turn has ended."""
        return min(self.turn_ends, default=0)


def planned_snapshots(prompt: PromptBlocks, branch: int) -> set[int]:
    """The lasting blocks of a prompt, from 1, after which snapshots are worth their memory.

    `branch` is how many blocks of it earlier prompts have.
    """
    between = filter(_is_between, range(1, prompt.lasting))
    counts = {*prompt.turn_ends, *between, branch, prompt.lasting - 1, prompt.lasting}
    return {count for count in counts if 0 < count <= prompt.lasting}


def _is_between(count: int) -> bool:
    """Whether a block has a snapshot where no turn ends: in a long prompt, fewer have."""
    spacing = max(MIN_SPACING, 1 << max(0, count.bit_length() - 3))
    return count % spacing == 0


def branch_weights(prompt: PromptBlocks, branch: int) -> list[float]:
    """For each lasting block but the last: how often a later prompt differs after it.

    In relation to one that continues the prompt, which has the weight 1. Edits are likelier the
    closer they are to the end.
    """
    blocks = range(1, prompt.lasting)
    edits = [
        (1.0 if block in prompt.turn_ends else _WITHIN_TURN) / (prompt.lasting + 1 - block)
        for block in blocks
    ]
    scale = _EDIT / (sum(edits) or 1.0)
    weights = dict(zip(blocks, (scale * edit for edit in edits), strict=True))
    others = [(prompt.first_turn, _OTHER_CHAT), (branch, _BRANCH)]
    if prompt.lasting not in prompt.turn_ends:
        others.append((prompt.lasting - 1, _LAST_BLOCK))
    for block, weight in others:
        if block in weights:
            weights[block] += weight
    return [*weights.values()]


def savings(snapshots: Iterable[int], weights: Sequence[float]) -> dict[int, float]:
    """For each snapshot but the last: how many blocks it saves, on average of later prompts.

    `snapshots` has the number of blocks before each snapshot. The snapshot that saves least is
    dropped first, and what the others save follows from the remaining ones. So of any number of
    them the best are kept, and a prompt that grows decides among those that it still has.
    """
    sums = [0.0, *accumulate(weights)]  # of the first blocks
    counts = [0, *sorted(snapshots)]
    before = {later: earlier for earlier, later in pairwise(counts)}
    after = dict(pairwise(counts))

    def loss(count: int) -> float:
        ending_here = sums[after[count] - 1] - sums[count - 1]
        return ending_here * (count - before[count])

    losses = {count: loss(count) for count in counts[1:-1]}
    queue = [(saved, count) for count, saved in losses.items()]
    heapq.heapify(queue)
    saved_by, least = dict[int, float](), 0.0
    while queue:
        saved, count = heapq.heappop(queue)
        if losses.get(count) != saved:
            continue  # a neighbor was dropped since
        least = max(least, saved)
        saved_by[count] = least
        earlier, later = before[count], after[count]
        del losses[count]
        before[later], after[earlier] = earlier, later
        for neighbor in {earlier, later} & losses.keys():
            losses[neighbor] = loss(neighbor)
            heapq.heappush(queue, (losses[neighbor], neighbor))
    return saved_by
