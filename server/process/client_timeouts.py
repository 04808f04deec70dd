"""Uvicorn's connection, with limits: it closes connections that send or read too slowly.

An idle connection costs an open file and a few KB: see connection_memory.py. Between two requests,
uvicorn closes it after 5 s. Within a request, a client has `timeout` seconds for each of these:

- to send the head of the request;
- to send its body, or another MIN_BYTES_PER_SECOND bytes of it for each second;
- to read more of a response.

The kernel keeps megabytes of a response that its client does not read, more than a whole answer. So
a client counts as reading while its kernel acknowledges bytes (`tcpi_bytes_acked`). macOS, Windows
and sockets in the file system do not say; there, it counts as reading while the bytes that the
kernel has not yet taken become more or fewer, and what the kernel has taken counts as read.

The time that the server takes to compute a response is not limited here.
"""

from __future__ import annotations

import itertools
import logging
import socket
import sys
from typing import TYPE_CHECKING, Any, cast

import h11
from typing_extensions import override
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from hearthd.runtime.system.operating_system import sent_bytes
from hearthd.server.process.connection_memory import ENCRYPTED, PLAIN, network_of
from hearthd.server.process.lingering import LingeringTransport
from hearthd.server.process.request_parser import RequestParser, TurnControl, error_response
from hearthd.server.process.request_target import use_origin_form

if TYPE_CHECKING:
    import asyncio
    from asyncio.trsock import TransportSocket

    from uvicorn._types import HTTPScope

    from hearthd.server.process.connection_memory import ConnectionMemory

log = logging.getLogger(__name__)

MIN_BYTES_PER_SECOND = 1000  # of a request body
_LAST_ANSWER = 1.0  # seconds in which a client that sends no more must read more of a response
_LAST_LINGER = 1.0  # seconds after which a client that still sends delays no end of the server
_CANDIDATES = 32  # idle connections; one is closed: thousands would take long
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_LENGTHS = {b"content-length", b"transfer-encoding"}


def _sent(connection: TransportSocket | None) -> tuple[int, int] | None:
    """Bytes that the other end has acknowledged, and bytes that it has not; None where unknown."""
    if connection is None or connection.fileno() < 0:  # closed meanwhile
        return 0, 0
    if connection.family not in _INTERNET:
        return None
    try:
        return sent_bytes(connection)
    except OSError:  # not TCP
        return 0, 0


class _ClientFaults(logging.LoggerAdapter[logging.Logger]):
    """Uvicorn's log, whose warnings are about requests of clients: any of them could fill it."""

    @property
    def level(self) -> int:
        """Uvicorn compares it with a level of its own."""
        return self.logger.level

    @override
    def warning(self, msg: object, *args: object, **options: Any) -> None:
        self.debug(msg, *args, **options)


class TimedConnection(H11Protocol):
    """One connection. If there are more than `max_connections`, an idle one is closed.

    The same if all take more than `memory` allows. So clients that connect and send nothing use up
    neither the open files nor the memory. The one that is closed is of the network with the most
    connections. With TLS, a connection counts before its handshake: see tls_connection.py.
    """

    conn: RequestParser
    flow: TurnControl
    tcp: asyncio.Transport  # set when the connection is accepted; with TLS, not `transport`

    def __init__(
        self, *arguments: Any, max_connections: int, memory: ConnectionMemory, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.logger = _ClientFaults(self.logger)  # type: ignore[assignment]
        self.conn = RequestParser()
        self.is_encrypted = False
        self.handshake_bytes = 0
        self._lingering: LingeringTransport | None = None
        self._max_connections = max_connections
        self._memory = memory
        self._counted = 0  # bytes
        self._since = self.loop.time()  # when the client started to send the head or the body
        self._received = 0  # bytes since then
        self._acknowledged = 0  # bytes of responses
        self._progress_at = self._since  # when the client last read more
        self._has_read = True  # all responses so far
        self._next_turn: asyncio.Handle | None = None
        self._adds_close = False  # to the headers of the request
        self._has_ended = False  # whether the client sends no more requests

    @property
    def is_idle(self) -> bool:
        """Whether the client has not yet sent the whole head of its next request."""
        return self.conn.their_state is h11.IDLE

    @property
    def _is_answered(self) -> bool:
        """Whether no response is missing."""
        return self.is_idle or self._is_lingering or self._ignores_body

    @property
    def _is_closable(self) -> bool:
        """Whether every response is complete and sent."""
        return self._is_answered and not self._unsent()

    @property
    def _is_lingering(self) -> bool:
        return self._lingering is not None and self._lingering.is_lingering

    @property
    def _ignores_body(self) -> bool:
        """Whether the client still sends the body of a request that is answered."""
        return self.cycle is not None and self.cycle.response_complete

    def accepted(self, tcp: asyncio.Transport) -> None:
        """Called when the client has connected, before a TLS handshake."""
        self.tcp = tcp
        self.connections.add(self)
        self._network = network_of(tcp.get_extra_info("peername"))
        self._memory.networks[self._network] += 1
        self.count()

    def count(self) -> None:
        """Count the memory that this connection takes now; close an idle one if there is no more.

        It is the memory of the connection, of the request's bytes that are not read yet, and of
        the response's bytes that are not sent yet.
        """
        if self not in self.connections:
            return
        size = PLAIN + self.is_encrypted * ENCRYPTED + self._unsent()
        size += 2 * self.handshake_bytes  # OpenSSL has a copy
        size += len(self.conn._receive_buffer)
        if self.cycle is not None:
            size += len(self.cycle.body)
        self._memory.taken += size - self._counted
        self._counted = size
        while (
            len(self.connections) > self._max_connections or self._memory.taken > self._memory.limit
        ):
            idle = (
                other
                for other in self.connections
                if isinstance(other, TimedConnection) and other is not self and other._is_closable
            )
            candidates = itertools.islice(idle, _CANDIDATES)
            if (other := min(candidates, key=TimedConnection._worth, default=None)) is None:
                break
            log.debug("too many connections: closing an idle one")
            other.abort()

    def _worth(self) -> tuple[int, float]:
        """The idle connection with the lowest is closed: the oldest of the busiest network."""
        return -self._memory.networks[self._network], self._since

    def forget(self) -> None:
        """Called when the connection is lost."""
        if self not in self.connections:
            return
        self.connections.discard(self)
        self._memory.networks[self._network] -= 1
        if not self._memory.networks[self._network]:
            del self._memory.networks[self._network]
        self._memory.taken -= self._counted
        self._counted = 0

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop, after a TLS handshake."""
        try:
            self.handshake_bytes = 0
            if not hasattr(self, "tcp"):
                self.accepted(transport)
            super().connection_made(transport)
            self._lingering = LingeringTransport(transport, self.loop, self._still_sends)
            self.transport = self._lingering  # type: ignore[assignment]
            self.flow = TurnControl(transport)
        except BaseException:
            transport.abort()  # the event loop would let the client wait for ever
            raise

    def _still_sends(self) -> bool:
        """Whether the client may still send a request that is answered."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR) and not self._has_ended

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.forget()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once, and forget it."""
        self.forget()
        self.tcp.abort()

    @override
    def shutdown(self) -> None:
        """Called by uvicorn when the server stops: close the connection after its response."""
        if self.transport is None:
            self.abort()
        elif self._is_lingering:
            self.loop.call_later(_LAST_LINGER, self.abort)
        elif not self.transport.is_closing():
            unsent = self._unsent()
            super().shutdown()
            if self.transport.is_closing() and not unsent:
                self.tcp.close()  # TLS would wait until the client closes too

    @override
    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._lingering and (self._is_lingering or (self._ignores_body and not self.is_idle)):
            self._lingering.discard(len(data))
        if self._is_lingering:
            return
        if self.timeout_keep_alive_task is not None:  # the next request begins
            self._restart()
        before = self.conn.their_state
        self._received += len(data)
        super().data_received(data)
        if self.conn.their_state is not before:
            self._restart()
        self.count()

    @override
    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Called when the client sends no more. Its last request is answered, if not too late."""
        self._has_ended = True
        if self._is_answered or self.conn.their_state is h11.SEND_BODY:
            return None
        self._abandon_later()
        return True

    def _abandon_later(self) -> None:
        self.loop.call_later(_LAST_ANSWER, self._abandon, self._read_bytes())

    def _abandon(self, read_bytes: int) -> None:
        """A client that has left looks as if it only sends no more, until it is sent something."""
        if self not in self.connections or self._is_answered:
            return
        if self._read_bytes() == read_bytes:
            self.abort()
        else:
            self._abandon_later()

    def _read_bytes(self) -> int:
        return (_sent(self.tcp.get_extra_info("socket")) or (0, 0))[0]

    @override
    def pause_writing(self) -> None:
        """Called when much of a response is not sent."""
        super().pause_writing()
        self.count()

    @override
    def resume_writing(self) -> None:
        """Called when most of it is sent."""
        super().resume_writing()
        self.count()

    @override
    def handle_events(self) -> None:
        """Called by uvicorn for the requests received: handles some, and the rest later."""
        self.conn.begin_turn()
        super().handle_events()
        if self.scope is not None:
            # Before the application's task begins. A second time changes nothing.
            use_origin_form(self.scope)
            self._close_after_some_bodies(self.scope)
        if self.conn.is_behind and self._next_turn is None:
            self.flow.hold()
            self._next_turn = self.loop.call_soon(self._continue)

    def _continue(self) -> None:
        """Handle what the last turn of the event loop left."""
        self._next_turn = None
        if not self.transport.is_closing():
            self.handle_events()
            self.count()
        if self._next_turn is None:
            self.flow.release()

    def _close_after_some_bodies(self, scope: HTTPScope) -> None:
        """Close the connection after a response to a request with two lengths, or a part of one.

        RFC 9112, section 6.1: a request with Transfer-Encoding and Content-Length could be an
        attempt to smuggle in a second one. The rest of a body in chunks would have to be parsed.
        """
        # Starlette replaces the list by a copy.
        headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
        names = {name for name, _ in headers}
        is_parted = b"transfer-encoding" in names and self.conn.their_state is h11.SEND_BODY
        closes = is_parted or names >= _LENGTHS
        if closes and CLOSE_HEADER not in headers:
            # The application's task, which has not yet answered, answers with the same header.
            headers.append(CLOSE_HEADER)
            self._adds_close = True
        elif self._adds_close and not closes:
            headers.remove(CLOSE_HEADER)
            self._adds_close = False

    @override
    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn while it handles an error of the parser. Ends the connection.

        The client reads why, unless it already has a response, or a part of one.
        """
        error = sys.exception()
        assert isinstance(error, h11.RemoteProtocolError)
        if self.cycle is not None and not self._ignores_body:
            self.cycle.disconnected = True  # the application may still answer this request
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in error_response(error):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @override
    def _unsupported_upgrade_warning(self) -> None:
        """Called by uvicorn. It would advise to install a library for WebSockets."""
        log.debug("an upgrade was requested, such as to WebSocket: answering in HTTP")

    @override
    def on_response_complete(self) -> None:
        """Called when the end of a response is written."""
        self._restart()
        self._has_read = False
        self.cycle.body = bytearray()
        super().on_response_complete()
        if self._has_ended and self._is_answered:
            self.transport.close()
        self.count()

    def close_if_timed_out(self, timeout: float) -> None:
        """Close the connection if its client is too slow. Called about once a second."""
        now = self.loop.time()
        self.count()
        if reason := self._slow_reader(now, timeout) or self._slow_sender(now, timeout):
            log.debug("client timeout: %s: closing the connection", reason)
            self.abort()

    def _unsent(self) -> int:
        """Bytes that the kernel has not yet taken. Those that TLS has are known until it closes."""
        unsent = self.tcp.get_write_buffer_size()
        if self.is_encrypted and self.transport is not None and not self.transport.is_closing():
            unsent += self.transport.get_write_buffer_size()
        return unsent

    def _restart(self) -> None:
        self._since = self._progress_at = self.loop.time()
        self._received = 0

    def _slow_reader(self, now: float, timeout: float) -> str:
        unsent = self._unsent()
        waiting = unsent > 0 or (self.transport is not None and self.transport.is_closing())
        if self.is_idle and not waiting and self._has_read:
            return ""  # thousands of connections can be idle, and _sent takes two system calls
        acknowledged, unacknowledged = _sent(self.tcp.get_extra_info("socket")) or (-unsent, 0)
        if not (unacknowledged or waiting):
            self._has_read = True
            self._progress_at = now
            return ""
        if acknowledged != self._acknowledged:
            self._acknowledged, self._progress_at = acknowledged, now
        return "response not read" if now - self._progress_at >= timeout else ""

    def _slow_sender(self, now: float, timeout: float) -> str:
        waited = now - self._since
        if self.is_idle:
            waits_for_next = self.timeout_keep_alive_task is not None  # which ends the wait
            return "no request sent" if waited >= timeout and not waits_for_next else ""
        if self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused:
            if self._received < MIN_BYTES_PER_SECOND * timeout:
                return "request body not sent" if waited >= timeout else ""
            self._since, self._received = now, 0
        return ""
