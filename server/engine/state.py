"""What the engine is doing, as a snapshot for whoever watches: slots, queue and prefix cache.

Plain numbers, made by the engine's thread and read by any other. It knows no metrics format.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SlotState:
    """One slot. When it is free, `request` is None and every number is 0.

    prompt_tokens     length of the prompt
    cached_tokens     of the prompt, taken from the prefix cache
    read_tokens       of prompt and answer, by now in the slot's KV cache
    generated_tokens  of the answer, by now
    """

    id: int
    request: int | None
    prompt_tokens: int
    cached_tokens: int
    read_tokens: int
    generated_tokens: int

    @property
    def busy(self) -> bool:
        """Whether a request has this slot."""
        return self.request is not None


@dataclass(frozen=True, kw_only=True)
class CacheState:
    """The prefix cache in memory; with `limit_bytes` 0 there is none.

    Since the start, in blocks: `hits` were restored (`disk_hits` of them from disk), `misses` had
    to be computed, and `evicted` were given up for lack of room.
    """

    blocks: int = 0
    bytes: int = 0
    limit_bytes: int = 0
    hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    evicted: int = 0


@dataclass(frozen=True, kw_only=True)
class EngineState:
    """The engine after its latest step: `queued` requests wait for a slot, of `queue_limit`."""

    slots: tuple[SlotState, ...]
    queued: int
    queue_limit: int
    cache: CacheState


@dataclass(frozen=True, kw_only=True)
class CallsState:
    """Calls of functions: whether one runs; `queued` others wait for it, of `queue_limit`."""

    busy: bool
    queued: int
    queue_limit: int
