"""TLS between a TCP connection and its HTTP connection.

The event loop could do the same, but its server knows a connection only after the handshake, and
closes one whose handshake takes 60 s. Clients that connect and send nothing would use up the open
files meanwhile. It also has a buffer of 256 KB for each connection.
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import h11
from typing_extensions import override

from hearthd.server.process.request_parser import error_response

if TYPE_CHECKING:
    import ssl

    from hearthd.server.process.client_timeouts import TimedConnection

_PIECE = 2**14  # bytes of a response that are encrypted at a time; buffers stay as large


@dataclass(frozen=True)
class TlsOptions:
    """What the TLS connections of an event loop share.

    `timeout` limits the handshake and the end of each, in seconds. `buffer` is for reading: the
    event loop reads into it and hands it over at once.
    """

    context: ssl.SSLContext
    timeout: float
    buffer: bytearray = field(default_factory=lambda: bytearray(_TlsLayer.max_size))


class TlsConnection(asyncio.Protocol):
    """A connection until its first byte, when a TLS layer takes its place: that takes 40 KB.

    If the first byte is a letter, the client speaks plain HTTP: it reads why that is not answered.
    """

    def __init__(self, http: TimedConnection, options: TlsOptions) -> None:
        self._http = http
        self._options = options
        self._is_refused = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop when TCP is connected."""
        assert isinstance(transport, asyncio.Transport)
        try:
            self._http.accepted(transport)
        except BaseException:
            transport.abort()  # the event loop would let the client wait for ever
            raise

    @override
    def data_received(self, data: bytes) -> None:
        """Called by the event loop with the start of the handshake."""
        if self._is_refused:
            return
        if data[:1].isalpha():
            self._refuse()
            return
        layer = self.begin()
        for start in range(0, len(data), layer.max_size):
            piece = data[start : start + layer.max_size]
            layer.get_buffer(-1)[: len(piece)] = piece
            layer.buffer_updated(len(piece))

    def begin(self) -> _TlsLayer:
        """Begin the handshake; returns the layer that goes on with it."""
        tcp = self._http.tcp
        try:
            self._http.is_encrypted = True
            layer = _TlsLayer(self._http, self._options)
            tcp.set_protocol(layer)
            layer.connection_made(tcp)
        except BaseException:
            tcp.abort()
            raise
        return layer

    def _refuse(self) -> None:
        """Send the reason. What else arrives is discarded until the client times out."""
        self._is_refused = True
        error = h11.RemoteProtocolError(
            "got plain HTTP, expected TLS; write https:// in place of http:// in the URL"
        )
        for event in error_response(error):
            self._http.tcp.write(self._http.conn.send(event) or b"")
        self._http.tcp.write_eof()

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the event loop if there was no handshake."""
        self._http.forget()


class _TlsLayer(SSLProtocol):
    """The TLS layer of one connection."""

    max_size: ClassVar[int] = 2**15  # bytes of the buffer for reading: more than one record of TLS

    def __init__(self, http: TimedConnection, options: TlsOptions) -> None:
        super().__init__(
            http.loop,
            http,
            options.context,
            None,  # type: ignore[arg-type]  # nothing waits for the handshake
            server_side=True,
            ssl_handshake_timeout=options.timeout,  # type: ignore[arg-type]  # may be a fraction
            ssl_shutdown_timeout=options.timeout,
        )
        self._http = http
        self._ssl_buffer = options.buffer
        self._ssl_buffer_view = memoryview(options.buffer)

    @override
    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop when bytes are in the buffer."""
        if self._http.transport is None:
            self._http.handshake_bytes += nbytes
            self._http.count()
        super().buffer_updated(nbytes)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the event loop, also when there was no handshake."""
        self._http.forget()
        super().connection_lost(exc)

    @override
    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Called by the event loop when the client sends no more, without the end of TLS."""
        if self._app_transport is not None and self._http.eof_received():
            self._eof_received = True  # so that the end of TLS does not wait for the client's
            return True
        return super().eof_received()

    @override
    def _call_eof_received(self, *_: object) -> None:  # type: ignore[misc]  # not in typeshed
        """Called by the event loop at the client's end of TLS, after which it loses the connection.

        It would tell the HTTP connection, and log a warning if that still has to answer.
        """

    @override
    def _write_appdata(self, list_of_data: list[bytes]) -> None:
        """Called by the transport of the HTTP connection."""
        for data in list_of_data:
            for start in range(0, len(data), _PIECE):
                piece = memoryview(data)[start : start + _PIECE]
                super()._write_appdata([piece])  # type: ignore[list-item]
