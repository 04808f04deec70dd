"""The interface of engines: the one of this process, or those of other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hearthd.server.engine.generation import EmbedRequest, Generation, Request
    from hearthd.server.engine.state import EngineState


class Backend(Protocol):
    """Serves requests for tokens. Called from one event loop."""

    @property
    def capacity(self) -> int:
        """How many requests may run or wait at a time."""

    def submit(self, request: Request | EmbedRequest) -> Generation:
        """Accept a request; raises QueueFull, Draining or EngineStopped."""

    def state(self) -> EngineState:
        """The current state of slots, queue and prefix cache."""
