"""The interfaces of workers and engines, which run in this process or in others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hearthd.server.engine.generation import EmbedRequest, Generation, Request
    from hearthd.server.engine.state import EngineState
    from hearthd.server.errors import Unavailable


class Worker(Protocol):
    """The thread that owns the runtime."""

    @property
    def idle(self) -> bool:
        """Whether no accepted request has a client any more."""

    def unavailable(self) -> Unavailable | None:
        """Why the worker rejects requests now, or None."""

    def start(self) -> None:
        """Accept requests. From now on only the thread may use the runtime."""

    def drain(self) -> None:
        """Reject new requests; finish the accepted ones."""

    def cancel(self) -> None:
        """Cancel the accepted requests when the current call of the runtime returns."""

    def close(self) -> None:
        """Cancel, and wait until the thread has ended."""


class Backend(Protocol):
    """Serves requests for tokens. Called from one event loop."""

    @property
    def capacity(self) -> int:
        """How many requests may run or wait at a time."""

    def submit(self, request: Request | EmbedRequest) -> Generation:
        """Accept a request; raises QueueFull, Draining or EngineStopped.

        Raises NotSupported or InvalidRequest for rows of embeddings that cannot be read.
        """

    def state(self) -> EngineState:
        """The current state of slots, queue and prefix cache."""
