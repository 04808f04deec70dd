"""A load of a model that waits for its turn or runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from hearthd.server.services.deployment import Deployment, Lease
    from hearthd.text.errors import RequestError


@dataclass
class PendingLoad:
    """A load that waits for its turn or runs, and the requests that wait for it."""

    waiting: list[asyncio.Future[Lease]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    opening: bool = False  # from here on it is not cancelled

    def succeed(self, deployment: Deployment) -> None:
        """Give each waiting request its lease."""
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_result(deployment.lease())
        self.waiting.clear()

    def fail(self, error: type[RequestError], message: str) -> None:
        """Give each waiting request an error of its own."""
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_exception(error(message))
        self.waiting.clear()
