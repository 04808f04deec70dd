"""Snapshots of what the engine is doing: slots, queue and prefix cache.

Plain numbers, written by the engine's thread and read by any other. It knows no metrics format.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hearthd.server.engine.sequence import Sequence


@dataclass(frozen=True, kw_only=True)
class SlotState:
    """One slot. When it is free, `request` is None and every number is 0.

    prompt_tokens     length of the prompt
    cached_tokens     tokens of the prompt that came out of the prefix cache
    read_tokens       tokens of prompt and answer that are in the slot's KV cache
    generated_tokens  tokens of the answer so far
    remaining_tokens  tokens that the answer may still have
    """

    id: int
    request: int | None
    prompt_tokens: int
    cached_tokens: int
    read_tokens: int
    generated_tokens: int
    remaining_tokens: int

    @property
    def busy(self) -> bool:
        """Whether a request has this slot."""
        return self.request is not None


@dataclass(frozen=True, kw_only=True)
class CacheState:
    """The prefix cache in memory; with `limit_bytes` 0 there is none.

    Blocks since the start: `hits` were restored (`disk_hits` of them from disk), `misses` were
    computed, `evicted` were dropped to stay within the limit.
    """

    blocks: int = 0
    bytes: int = 0
    limit_bytes: int = 0
    hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    evicted: int = 0

    def __add__(self, other: CacheState) -> CacheState:
        """The sums of both."""
        return CacheState(
            **{
                name: value + getattr(other, name)
                for name, value in dataclasses.asdict(self).items()
            }
        )


@dataclass(frozen=True, kw_only=True)
class EngineState:
    """The engine after its latest step, or after the latest end of a request.

    `queued` requests wait, at most `queue_limit` may.
    """

    slots: tuple[SlotState, ...]
    queued: int
    queue_limit: int
    cache: CacheState


@dataclass(frozen=True, kw_only=True)
class CallsState:
    """Calls of array functions: `slots` can run at a time, and at most `queue_limit` can wait."""

    slots: int
    busy: int
    queued: int
    queue_limit: int


def slot_states(slots: int, running: Iterable[Sequence]) -> tuple[SlotState, ...]:
    """The states of all slots: of a running sequence, or idle."""
    states = {
        sequence.slot: SlotState(
            id=sequence.slot,
            request=sequence.id,
            prompt_tokens=sequence.prompt_tokens,
            cached_tokens=sequence.cached_tokens,
            read_tokens=sequence.position,
            generated_tokens=len(sequence.tokens) - sequence.prompt_tokens,
            remaining_tokens=sequence.max_length - len(sequence.tokens),
        )
        for sequence in running
    }
    return tuple(states.get(slot) or _free(slot) for slot in range(slots))


def merged_slots(groups: Iterable[tuple[SlotState, ...]]) -> tuple[SlotState, ...]:
    """The slots of several engines, numbered from 0."""
    slots = (slot for group in groups for slot in group)
    return tuple(dataclasses.replace(slot, id=id_) for id_, slot in enumerate(slots))


def _free(slot: int) -> SlotState:
    return SlotState(
        id=slot,
        request=None,
        prompt_tokens=0,
        cached_tokens=0,
        read_tokens=0,
        generated_tokens=0,
        remaining_tokens=0,
    )
