"""Which blocks of prompts a model replica holds in its prefix cache, for the router."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.server.engine.state import CallsState, EngineState

# A block that was sent counts as cached for this long without being reported: the prompt waits for
# its slot and is read, and then a report is due.
_SENT_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class BundleStats:
    """A replica's report of a bundle that it has loaded.

    blocks  the shortened keys of the blocks in its prefix cache
    state   of its engine, or of its calls of array functions
    """

    blocks: frozenset[bytes]
    state: EngineState | CallsState


@dataclass
class SentBlocks:
    """The blocks of the prompts that were sent to one replica lately, with the time of each."""

    times: dict[bytes, float] = field(default_factory=dict)

    def add(self, blocks: Sequence[bytes], now: float) -> None:
        """Add the blocks of a prompt; forget the old ones."""
        for block in blocks:
            self.times.pop(block, None)
            self.times[block] = now
        for block, sent in list(self.times.items()):
            if now - sent < _SENT_SECONDS:
                break
            del self.times[block]


def matching_blocks(
    blocks: Sequence[bytes], cached: frozenset[bytes], sent: Mapping[bytes, float]
) -> int:
    """How many of the first `blocks` of a prompt a replica holds."""
    for index, block in enumerate(blocks):
        if block not in cached and block not in sent:
            return index
    return len(blocks)
