"""The end of a connection whose client still sends a request that is answered already.

To close it at once would reset it: TCP discards a response that the client has not yet read. So the
server closes its half, if the connection is plain, and discards what arrives, for a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

SECONDS = 30.0
MAX_BYTES = 2**28


class LingeringTransport:
    """The transport of a connection, whose `close` lets it linger if `lingers()` says so."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        lingers: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._lingers = lingers
        self._timer: asyncio.TimerHandle | None = None
        self._discarded = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def is_lingering(self) -> bool:
        """Whether the response is complete, and what arrives is discarded."""
        return self._timer is not None

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""
        return self.is_lingering or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is closed: asyncio would log a warning for them."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection, when what is written is sent; at once the second time."""
        if self.is_lingering or self._transport.is_closing() or not self._lingers():
            self.end()
            return
        self._timer = self._loop.call_later(SECONDS, self.end)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()

    def discard(self, size: int) -> None:
        """Count bytes that have arrived; too many end the connection."""
        self._discarded += size
        if self._discarded > MAX_BYTES:
            self.end()

    def end(self) -> None:
        """Close the connection now."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()
