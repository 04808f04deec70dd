"""One client's connection: as uvicorn has it, but no client may take for ever over anything.

A client that does nothing holds a file and a few KB. Each has `patience` seconds to send the head
of a request, and its body at SLOWEST bytes a second at least; and as long to read on, when what it
has not read is too much to be written. Between requests uvicorn waits 5 s. How long the server
itself takes over an answer is not limited here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

SLOWEST = 1000  # bytes of a body a second


class Connection(H11Protocol):
    """A connection, of which there are `most`: of those that do nothing one has to go for another.

    So those who connect and are silent leave files for those who ask.
    """

    def __init__(self, *arguments: Any, most: int, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._most = most
        self._since = self.loop.time()  # when the client began what it is doing
        self._received = 0  # bytes since then
        self._unread: int | None = None  # bytes that are to be written, but cannot
        self._unread_since = self._since

    @property
    def asks_nothing(self) -> bool:
        """Whether no whole head of a request has come that is not answered."""
        return self.conn.their_state is h11.IDLE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        if len(self.connections) > self._most:
            for other in self.connections:
                if isinstance(other, Connection) and other is not self and other.asks_nothing:
                    log.debug("too many connections: one that asks nothing is closed")
                    other.transport.abort()
                    other.connections.discard(other)
                    break

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        before = self.conn.their_state
        self._received += len(data)
        super().data_received(data)
        if self.conn.their_state is not before:
            self._begin()

    def on_response_complete(self) -> None:
        """Called when the last of an answer is written."""
        self._begin()
        super().on_response_complete()

    def close_if_late(self, patience: float) -> None:
        """Cut the connection if its client has taken too long; asked every second or so."""
        now = self.loop.time()
        if late := self._late_to_read(now, patience) or self._late_to_send(now, patience):
            log.debug("a client is %s: its connection is closed", late)
            self.transport.abort()

    def _begin(self) -> None:
        self._since, self._received = self.loop.time(), 0

    def _late_to_read(self, now: float, patience: float) -> str:
        if not (self.flow.write_paused or self.transport.is_closing()):
            self._unread = None
            return ""
        left = self.transport.get_write_buffer_size()
        if left != self._unread:
            self._unread, self._unread_since = left, now
        return "late to read" if now - self._unread_since >= patience else ""

    def _late_to_send(self, now: float, patience: float) -> str:
        waited = now - self._since
        if self.asks_nothing:
            return "late to ask" if waited >= patience else ""
        if self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused:
            late = waited >= patience + self._received / SLOWEST
            return "late with its body" if late else ""
        return ""
