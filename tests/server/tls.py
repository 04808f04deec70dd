"""Certificates of 127.0.0.1, and clients that trust them."""

from __future__ import annotations

import functools
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from server.process.listening import Tls

if TYPE_CHECKING:
    import socket

# A key of an elliptic curve takes milliseconds to make.
_COMMAND = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 and its key, both fresh."""
    files = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *_COMMAND.split(),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", files[0], "-keyout", files[1]),
        ],
        check=True,
        capture_output=True,
    )
    return files


@functools.cache
def tls() -> Tls:
    """One certificate for all tests of a process."""
    with tempfile.TemporaryDirectory() as folder:
        cert, key = certificate(Path(folder))
        return Tls(certificate=cert, key=key)


@functools.cache
def trusting() -> ssl.SSLContext:
    """The context of a client that trusts the server of a test, whatever its certificate is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def encrypted(connection: socket.socket, scheme: str) -> socket.socket:
    """The connection, with TLS if the scheme is https."""
    return trusting().wrap_socket(connection) if scheme == "https" else connection
