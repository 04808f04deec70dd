"""TLS between a TCP connection and its HTTP connection.

The event loop could do the same, but its server knows a connection only after the handshake, and
closes one whose handshake takes 60 s. Clients that connect and send nothing would use up the open
files meanwhile.
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    import ssl

    from hearthd.server.process.client_timeouts import TimedConnection


class TlsConnection(SSLProtocol):
    """The TLS layer of one connection; `timeout` limits its handshake and its end, in seconds."""

    max_size = 2**15  # bytes of the buffer for reading: more than one record of TLS

    def __init__(self, http: TimedConnection, context: ssl.SSLContext, *, timeout: float) -> None:
        super().__init__(
            http.loop,
            http,
            context,
            None,  # type: ignore[arg-type]  # nothing waits for the handshake
            server_side=True,
            ssl_handshake_timeout=timeout,  # type: ignore[arg-type]  # it may be a fraction
            ssl_shutdown_timeout=timeout,
        )
        self._http = http

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop when TCP is connected."""
        assert isinstance(transport, asyncio.Transport)
        try:
            self._http.accepted(transport)
            super().connection_made(transport)
        except BaseException:
            transport.abort()  # the event loop would let the client wait for ever
            raise

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the event loop, also when there was no handshake."""
        self._http.connections.discard(self._http)
        super().connection_lost(exc)
