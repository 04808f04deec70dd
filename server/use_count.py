"""How many requests use something, and a wait until none does."""

from __future__ import annotations

import asyncio


class UseCount:
    """Counts users between `begin` and `end`. Used from one event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._unused = asyncio.Event()
        self._unused.set()

    def begin(self) -> None:
        """Count another user."""
        self.count += 1
        self._unused.clear()

    def end(self) -> None:
        """Count one user less."""
        self.count -= 1
        if not self.count:
            self._unused.set()

    async def unused(self) -> None:
        """Wait until nothing uses it."""
        while self.count:
            await self._unused.wait()
