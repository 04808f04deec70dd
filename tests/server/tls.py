"""Clients that trust the server of a test, with and without TLS."""

from __future__ import annotations

import functools
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket


@functools.cache
def trusting() -> ssl.SSLContext:
    """The context of a client that trusts the server of a test, whatever its certificate is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def encrypted(connection: socket.socket, scheme: str) -> socket.socket:
    """The connection, with TLS if the scheme is https."""
    return trusting().wrap_socket(connection) if scheme == "https" else connection
