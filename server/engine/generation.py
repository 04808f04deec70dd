"""A request to the engine and what comes back: the seam between the text layer and the engine.

An accepted request is a `Generation`. Its events are at most one Started, then Tokens or one
Embedded, then exactly one Finished or Failed. All times are in seconds of time.monotonic.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    from server.sampling.constraint import Constraint
    from server.sampling.options import SamplingOptions
    from server.sampling.sampler import Logprobs


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prompt of token ids, at least one, with room in the context for one more.

    deadline      when it ends, finished or not; None for never
    cache_prompt  whether to take what is known of the prompt from the prefix cache, and to keep it
    """

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingOptions
    seed: int
    deadline: float | None = None
    cache_prompt: bool = True
    constraint: Constraint | None = None


@dataclass(frozen=True, kw_only=True)
class EmbedRequest:
    """Token ids to be read and not continued: at least one, at most as many as the context has.

    `deadline` is as in Request. The prefix cache is not used.
    """

    prompt: tuple[int, ...]
    deadline: float | None = None


@dataclass(frozen=True)
class Started:
    """The prompt has been read; `at` is when the request left the queue.

    `cached_tokens` of the prompt came out of the prefix cache.
    """

    at: float
    cached_tokens: int


@dataclass(frozen=True)
class Token:
    """One more token of the answer.

    By now `drafted` tokens of it have been guessed and checked, of which `accepted` were right.
    """

    id: int
    logprobs: Logprobs | None
    at: float
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class Embedded:
    """What an EmbedRequest asked for: the mean of its tokens' hidden states, f32 (hidden,)."""

    mean: NDArray[np.float32]


@dataclass(frozen=True)
class Finished:
    """The end: by the model, by the answer's length, at the deadline, or by a cancellation."""

    reason: Literal["stop", "length", "timeout", "cancelled"]


@dataclass(frozen=True)
class Failed:
    """The end of a request whose step raised; `by_rules` if its own rules made it impossible."""

    message: str
    by_rules: bool = False


Event = Started | Token | Embedded | Finished | Failed


class Generation:
    """One accepted request, as its client sees it. Leaving its `with` block cancels it.

    Made in the client's event loop; only `deliver` is called from another thread.
    """

    def __init__(self, leave: Callable[[], None]) -> None:
        self.submitted = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._leave = leave

    def __enter__(self) -> Generation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    async def events(self) -> AsyncIterator[Event]:
        """The events of the request, as they come, to the last one."""
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, Finished | Failed):
                return

    def deliver(self, event: Event) -> None:
        """Hand an event over to the client's event loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
