"""Requests to the engine and the events that it returns: the interface to the text layer.

An accepted request is a `Generation`. Its events are Prefilled, at most one Started, then Tokens or
one Embedded, then exactly one Finished or Failed. All times are in seconds of time.monotonic.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hearthd.runtime.kv_blocks import block_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.sampling.constraint import Constraint
    from hearthd.sampling.options import SamplingOptions
    from hearthd.sampling.sampler import Logprobs
    from hearthd.server.engine.prompt import Prompt


@dataclass(frozen=True, kw_only=True)
class AdapterUse:
    """A LoRA adapter that a request uses.

    place  of the runtime, from 1 on
    scale  of its terms
    key    a digest of the adapter and the scale: what else decides the rows of a prompt
    """

    place: int
    scale: float
    key: bytes


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prompt to be continued.

    prompt        at least one position, and fewer than the context has; the last one has a token
    max_tokens    length of the answer, at least 1; the context may end it earlier
    seed          of the random numbers for sampling
    deadline      when the answer ends at the latest; None for never
    cache_prompt  whether to restore blocks of the prompt from the prefix cache and to save them
    cache_salt    32 bytes, or none: only requests with the same ones share blocks
    constraint    rules for the answer, such as a grammar; None for none
    progress      whether to deliver Prefilled after each chunk of the prompt
    adapter       None for none
    """

    prompt: Prompt
    max_tokens: int
    sampling: SamplingOptions
    seed: int
    deadline: float | None = None
    cache_prompt: bool = True
    cache_salt: bytes = b""
    constraint: Constraint | None = None
    progress: bool = False
    adapter: AdapterUse | None = None

    def block_keys(self, chunk: int) -> tuple[bytes, ...]:
        """The keys of the prompt's blocks of `chunk` positions; empty if they are not cached.

        The last token is in no block: it is never read in a chunk.
        """
        if not self.cache_prompt:
            return ()
        adapter = self.adapter.key if self.adapter else b""
        chunks = (part.content for part in self.prompt[:-1].chunks(chunk))
        return block_keys(chunks, self.cache_salt + adapter)


@dataclass(frozen=True, kw_only=True)
class EmbedRequest:
    """Token ids to be embedded: at least one, at most one per position of the context.

    `deadline` and `adapter` are as in Request, `pooling` is the model's. The prefix cache is not
    used.
    """

    prompt: tuple[int, ...]
    pooling: Literal["mean", "last"] = "mean"
    deadline: float | None = None
    adapter: AdapterUse | None = None


@dataclass(frozen=True)
class Prefilled:
    """More of the prompt has been read. Only for requests that ask for their progress.

    at             when the request got its slot
    tokens         tokens of the prompt that have been read so far
    cached_tokens  tokens among them that came out of the prefix cache
    """

    at: float
    tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class Started:
    """The prompt has been read, or the request has ended before that.

    at             when the request got a slot
    cached_tokens  tokens of the prompt that came out of the prefix cache
    """

    at: float
    cached_tokens: int


@dataclass(frozen=True)
class Token:
    """The next token of the answer.

    at        when it was sampled
    drafted   drafted tokens that were verified so far, for the whole answer
    accepted  drafted tokens that became part of the answer so far
    """

    id: int
    logprobs: Logprobs | None
    at: float
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class Embedded:
    """The result of an EmbedRequest: the mean or the last hidden state, f32 (hidden,)."""

    state: NDArray[np.float32]


@dataclass(frozen=True)
class Finished:
    """The end: an eos token or a finished constraint, the length, the deadline, or a cancel."""

    reason: Literal["stop", "length", "timeout", "cancelled"]


@dataclass(frozen=True)
class Failed:
    """The end after an error; `by_rules` if the constraint or the biases leave no token."""

    message: str
    by_rules: bool = False


Event = Prefilled | Started | Token | Embedded | Finished | Failed


class Generation:
    """An accepted request, as its client sees it. Leaving its `with` block cancels the request.

    Created in the client's event loop; only `deliver` may be called from another thread.
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
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()

    async def events(self) -> AsyncIterator[Event]:
        """The events of the request as they come, up to the last one."""
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, Finished | Failed):
                return

    async def batches(self) -> AsyncIterator[list[Event]]:
        """The events that have come since the latest batch, at least one, up to the last one."""
        while True:
            events = [await self._events.get()]
            while not self._events.empty():
                events.append(self._events.get_nowait())
            yield events
            if isinstance(events[-1], Finished | Failed):
                return

    def deliver(self, event: Event) -> None:
        """Put an event into the client's event loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing reads the event
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
