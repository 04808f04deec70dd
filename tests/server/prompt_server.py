"""A server of a test ends at once.

Uvicorn looks ten times a second whether it is to end, and pauses as long before it closes, which is
longer than most tests take.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import uvicorn.server
from typing_extensions import override

from hearthd.server.process.draining_server import DrainingServer

if TYPE_CHECKING:
    import socket

_PAUSE = 0.001  # seconds, of a server that ends

_ending: ContextVar[asyncio.Event | None] = ContextVar("ending", default=None)


class PromptServer(DrainingServer):
    """A server that ends as after a signal, without uvicorn's pauses."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ending = asyncio.Event()

    @override
    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        _ending.set(self._ending)
        await super().serve(sockets)

    def end(self) -> None:
        """Drain: called by another thread."""
        self.handle_exit(signal.SIGTERM, None)
        if self._loop is None:
            self._ending.set()
        else:
            with contextlib.suppress(RuntimeError):  # it has been closed
                self._loop.call_soon_threadsafe(self._ending.set)


class _Asyncio:
    """asyncio as uvicorn's server has it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        """Pause; a PromptServer only until it ends."""
        ending = _ending.get()
        if ending is None or ending.is_set():
            await asyncio.sleep(seconds if ending is None else _PAUSE)
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), seconds)


vars(uvicorn.server)["asyncio"] = _Asyncio()
