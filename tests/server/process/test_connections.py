"""What clients may do to a connection, with and without TLS: no server ends by it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from fastapi import FastAPI

from hearthd.server.process.draining_server import DrainingServer
from hearthd.server.process.request_target import use_origin_form
from tests.patience import PATIENCE, wait_until
from tests.server.certificates import tls
from tests.server.generate_client import answer
from tests.server.process.test_fault_isolation import running
from tests.server.tls import encrypted

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from hearthd.server.process.client_timeouts import TimedConnection

__all__ = ["running"]  # a fixture


def abrupt(connection: socket.socket) -> None:
    """Close a connection with a reset, without the end of TLS."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def send_garbage(_scheme: str, connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x01\x02\x00garbage" * 50)
    with contextlib.suppress(OSError):
        connection.recv(100)
    connection.close()


def send_plain_http(scheme: str, connection: socket.socket) -> None:
    head = b"POST /missing HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n"
    connection.sendall(head + bytes(900_000))
    received = b"".join(iter(lambda: connection.recv(1000), b""))
    assert b"404" in received or (scheme == "https" and b"got plain HTTP, expected TLS" in received)
    connection.close()


def leave_in_the_handshake(_scheme: str, connection: socket.socket) -> None:
    # The header of a record, and the begin of a ClientHello of 508 bytes.
    connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    connection.close()


def reset_in_the_handshake(_scheme: str, connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    abrupt(connection)


def reset_after_a_request(scheme: str, connection: socket.socket) -> None:
    secure = encrypted(connection, scheme)
    secure.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    abrupt(secure)


def reset_in_a_stream(scheme: str, connection: socket.socket) -> None:
    secure = encrypted(connection, scheme)
    body = b'{"prompt": "x", "max_tokens": 200, "stream": true}'
    head = b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    secure.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert secure.recv(1)
    abrupt(secure)


def close_without_the_end_of_tls(scheme: str, connection: socket.socket) -> None:
    secure = encrypted(connection, scheme)
    secure.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert secure.recv(1)
    secure.close()


def close_half(scheme: str, connection: socket.socket) -> None:
    secure = encrypted(connection, scheme)
    secure.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    secure.shutdown(socket.SHUT_WR)
    time.sleep(0.01)
    secure.close()


@pytest.mark.parametrize(
    "leave",
    [
        send_garbage,
        send_plain_http,
        leave_in_the_handshake,
        reset_in_the_handshake,
        reset_after_a_request,
        reset_in_a_stream,
        close_without_the_end_of_tls,
        close_half,
    ],
)
def test_no_client_ends_the_server(
    running: tuple[DrainingServer, httpx.Client],
    caplog: pytest.LogCaptureFixture,
    leave: Callable[[str, socket.socket], None],
) -> None:
    server, client = running
    caplog.set_level(logging.ERROR)
    before = set(server.server_state.connections)
    for _ in range(10):
        target = (client.base_url.host, client.base_url.port)
        leave(client.base_url.scheme, socket.create_connection(target, timeout=PATIENCE))
        time.sleep(0.01)  # so that ticks meet connections in every state
    answer(client, max_tokens=1)
    wait_until(lambda: len(server.server_state.connections - before) <= 1)
    assert not caplog.text


def test_new_connections_are_answered(
    running: tuple[DrainingServer, httpx.Client],
) -> None:
    """With TLS, a check of a connection that had just been lost ended the process."""
    _, client = running
    target = (client.base_url.host, client.base_url.port)
    context: set[bool] = set()

    def ask_on_new_connections(count: int) -> None:
        for _ in range(count):
            with encrypted(
                socket.create_connection(target, PATIENCE), client.base_url.scheme
            ) as one:
                one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                context.add(one.recv(100).startswith(b"HTTP/1.1 200"))

    threads = [threading.Thread(target=ask_on_new_connections, args=(13,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert context == {True}


@pytest.mark.parametrize(
    "state", ["lost", "closed twice", "in the handshake", "before the handshake"]
)
def test_a_connection_is_checked_in_any_state(state: str) -> None:
    """The event loop tells a connection late that its TLS has ended."""
    server = DrainingServer(FastAPI(), mock.Mock(), tls=tls(), client_timeout=1e-9)

    async def check() -> None:
        server.config.load()
        connection: Any = server._new_connection(
            config=server.config, server_state=server.server_state, app_state={}
        )
        http: TimedConnection = connection._http
        tcp = mock.Mock(spec=asyncio.Transport)
        tcp.get_write_buffer_size.return_value = 0
        tcp.get_extra_info.return_value = None
        tcp.is_closing.return_value = False
        connection.connection_made(tcp)
        layer: Any = connection if state == "before the handshake" else connection.begin()
        if state in ("lost", "closed twice"):
            http.connection_made(layer._get_app_transport())
            http.transport.close()
            http.transport.close()
        if state == "lost":
            layer.connection_lost(None)
        http.close_if_timed_out(0)
        tcp.abort.assert_called()
        server.server_state.connections.add(http)
        http.shutdown()
        server._abort_connections()
        assert not server.server_state.connections
        if state != "lost":
            layer.connection_lost(None)

    asyncio.run(check())


def test_a_websocket_is_answered_as_http() -> None:
    """A library for WebSockets that is installed would make connections of its own."""
    assert DrainingServer(FastAPI(), mock.Mock()).config.ws == "none"


TARGETS = [
    (b"GET /health", 200),
    (b"GET http://other.local/health", 200),
    (b"GET HTTPS://user@other.local:8443/health?verbose=1", 200),
    (b"GET http://[::1]:8080/health", 200),
    (b"GET http://other.local/v1/%6dodels", 200),
    (b"GET http://other.local?verbose=1", 200),
    (b"GET http://other.local/none", 404),
    (b"GET /http://other.local/health", 404),
    (b"GET //other.local/health", 404),
    (b"OPTIONS *", 200),
    (b"OPTIONS /health", 405),
    (b"GET *", 400),
    (b"POST *", 400),
    (b"CONNECT other.local:443", 501),
    (b"CONNECT *", 501),
    (b"CONNECT /health", 501),
    (b"GET other.local:443", 400),
    (b"GET health", 400),
    (b"GET %2Fhealth", 400),
    (b"GET ?verbose=1", 400),
    (b"GET ftp://other.local/health", 400),
    (b"GET http:///health", 400),
    (b"GET http://:80/health", 400),
    (b"GET http://user@/health", 400),
]


@pytest.mark.parametrize(("request_line", "status"), TARGETS)
def test_each_form_of_a_request_target_has_a_status(
    running: tuple[DrainingServer, httpx.Client],
    caplog: pytest.LogCaptureFixture,
    request_line: bytes,
    status: int,
) -> None:
    """RFC 9112, section 3.2: the connection then serves the next request."""
    _, client = running
    address = (client.base_url.host, client.base_url.port)
    with encrypted(
        socket.create_connection(address, PATIENCE), client.base_url.scheme
    ) as connection:
        for line, expected in ((request_line, status), (b"GET /health", 200)):
            connection.sendall(b"%s HTTP/1.1\r\nHost: x\r\n\r\n" % line)
            response = http.client.HTTPResponse(connection, method=line.split()[0].decode())
            response.begin()
            body = response.read()
            assert response.status == expected
            if expected >= 400:
                assert json.loads(body)["error"]["code"] == expected
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_options_of_the_server_are_its_methods(
    running: tuple[DrainingServer, httpx.Client],
) -> None:
    _, client = running
    response = client.request("OPTIONS", "/", extensions={"target": b"*"})
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["Allow"] == "GET, HEAD, POST, DELETE, OPTIONS"
    assert response.headers["X-Request-Id"]


def test_the_host_of_an_absolute_target_counts() -> None:
    headers = [(b"accept", b"*/*"), (b"host", b"x")]
    scope: Any = {"raw_path": b"http://user@other:80", "path": "http:", "headers": headers}
    use_origin_form(scope)
    assert scope["path"] == "/"
    assert scope["raw_path"] == b"/"
    assert headers == [(b"host", b"other:80"), (b"accept", b"*/*")]
