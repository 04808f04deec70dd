"""Connections that end while a client still sends, and after it has closed its half."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import socket
import ssl
import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.process import client_timeouts, lingering
from tests.patience import PATIENCE, wait_until
from tests.server.api.middleware.test_abuse import request
from tests.server.api.operator.test_operator_routes import wait_until_free
from tests.server.generate_client import answer
from tests.server.process.test_fault_isolation import running
from tests.server.tls import encrypted, trusting

if TYPE_CHECKING:
    import httpx

    from hearthd.server.process.draining_server import DrainingServer

    Running = tuple[DrainingServer, httpx.Client]

__all__ = ["running"]  # a fixture

LARGE = b"x" * 2**25  # more than --max-body-bytes, and than the kernel keeps
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


def connect(client: httpx.Client, *, raw: bool = False) -> socket.socket:
    target = (client.base_url.host, client.base_url.port)
    connection = socket.create_connection(target, timeout=PATIENCE)
    return connection if raw else encrypted(connection, client.base_url.scheme)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("close", [False, True])
def test_a_client_that_sends_too_much_reads_the_reason(
    running: Running, chunked: bool, close: bool
) -> None:
    _, client = running
    kinds: dict[str, Any] = {"http": http.client.HTTPConnection}
    kinds["https"] = lambda *address, **options: http.client.HTTPSConnection(
        *address, context=trusting(), **options
    )
    url = client.base_url
    connection = kinds[url.scheme](url.host, url.port, timeout=PATIENCE)
    headers = {"Content-Type": "application/json"} | ({"Connection": "close"} if close else {})
    body: Any = (LARGE[start : start + 2**16] for start in range(0, len(LARGE), 2**16))
    connection.request(
        "POST", "/generate", body if chunked else LARGE, headers, encode_chunked=chunked
    )
    response = connection.getresponse()
    assert response.status == 413
    assert json.loads(response.read())["error"]["message"].startswith("body: too large")
    connection.close()


def test_a_client_that_sends_no_http_reads_the_reason(running: Running) -> None:
    _, client = running
    with connect(client) as connection:
        connection.sendall(b"garbage\r\n\r\n" + LARGE)
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(("limit", "value"), [("SECONDS", 0.1), ("MAX_BYTES", 2**16)])
def test_the_server_discards_for_a_while_only(
    running: Running, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    server, client = running
    monkeypatch.setattr(lingering, limit, value)
    if (tls_options := server._tls_options) is not None:  # it also waits for the end of TLS
        monkeypatch.setattr(server, "_tls_options", replace(tls_options, timeout=3.0))
    before = set(server.server_state.connections)
    with connect(client) as connection:
        connection.sendall(request(b"", length=10**9))

        def is_closed() -> bool:
            if limit == "MAX_BYTES":
                connection.sendall(LARGE[: 2**16])
            return not set(server.server_state.connections) - before

        try:
            wait_until(is_closed)
        except OSError:
            assert limit == "MAX_BYTES"


def test_a_client_that_still_sends_does_not_delay_the_end_of_the_server(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "SECONDS", 1e6)
    monkeypatch.setattr(client_timeouts, "_LAST_LINGER", 0.1)
    server, client = running
    monkeypatch.setattr(server, "_client_timeout", 1e6)
    before = set(server.server_state.connections)
    with connect(client) as connection:
        connection.sendall(request(b"", length=10**9))
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
        for opened in set(server.server_state.connections) - before:
            assert isinstance(opened, client_timeouts.TimedConnection)
            opened.loop.call_soon_threadsafe(opened.shutdown)
        wait_until(lambda: not set(server.server_state.connections) - before)


def test_an_idle_connection_waits_longer_than_a_slow_one(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients reuse it: its end must not cross a request. A part of a request is slow again."""

    def is_healthy() -> bool:
        connection.sendall(HEALTH)
        with http.client.HTTPResponse(connection) as response:
            response.begin()
            return response.status == 200 and bool(response.read())

    server, client = running
    before = set(server.server_state.connections)
    with connect(client) as connection:
        assert is_healthy()
        monkeypatch.setattr(server, "_client_timeout", 0.5)
        time.sleep(1)  # the server checks ten times a second: see `running`
        assert is_healthy()
        monkeypatch.setattr(server, "_client_timeout", 1e6)
        (opened,) = set(server.server_state.connections) - before
        assert isinstance(opened, client_timeouts.TimedConnection)
        opened._since = 0.0
        connection.sendall(HEALTH[:9])
        wait_until(lambda: opened._received == 9)
        assert opened._since > 0  # when the request began, not when the one before it ended
        monkeypatch.setattr(server, "_client_timeout", 0.5)
        wait_until(lambda: not set(server.server_state.connections) - before)


def half_closed(connection: socket.socket) -> socket.socket:
    """The connection, which can only be read; Python's `shutdown` of TLS reads no more."""
    socket.socket.shutdown(connection, socket.SHUT_WR)
    return connection


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_that_has_closed_its_half_is_answered(running: Running, count: int) -> None:
    server, client = running
    before = set(server.server_state.connections)
    with connect(client) as connection:
        connection.sendall(HEALTH * count)
        received = b""
        half_closed(connection)
        while data := connection.recv(2**16):
            received += data
        assert received.count(b"HTTP/1.1 200 ") == count
    wait_until(lambda: not set(server.server_state.connections) - before)


def test_a_stream_goes_on_after_its_client_has_closed_its_half(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_timeouts, "_LAST_ANSWER", 0.2)
    _, client = running
    body = b'{"prompt": "x", "max_tokens": 50, "stream": true}'
    with connect(client) as connection:
        connection.sendall(request(body))
        half_closed(connection)
        received = b""
        while data := connection.recv(2**16):
            received += data
    assert b'"finish_reason":"length"' in received


@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_client_that_leaves_gives_up_its_slot(running: Running, stream: str) -> None:
    """It closes the connection, which at first looks as if it had closed its half."""
    _, client = running
    with connect(client) as connection:
        connection.sendall(
            request(b'{"prompt": "x", "max_tokens": 250, "stream": %s}' % stream.encode())
        )
        wait_until(lambda: any(slot["is_processing"] for slot in client.get("/slots").json()))
    began = time.monotonic()
    wait_until_free(client)
    assert time.monotonic() - began < 2 * client_timeouts._LAST_ANSWER + 1
    answer(client, max_tokens=1)


def test_requests_of_any_client_fill_no_log(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    _, client = running
    upgrade = HEALTH[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    for sent, status in ((b"garbage\r\n\r\n", b"400"), (upgrade, b"200")):
        with connect(client) as connection:
            connection.sendall(sent)
            assert connection.recv(100).startswith(b"HTTP/1.1 " + status)
    with connect(client, raw=True) as connection, contextlib.suppress(OSError):
        connection.sendall(b"\x16\x03\x01garbage\r\n\r\n")  # no TLS, and no HTTP
        connection.recv(100)
    with connect(client) as connection:
        connection.sendall(request(b'{"prompt": "x", "max_tokens": 250}'))
        if isinstance(connection, ssl.SSLSocket):
            with contextlib.suppress(OSError):  # a session ticket may arrive after the end of TLS
                connection.unwrap()
    wait_until_free(client)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    assert "Invalid HTTP request" in caplog.text
    assert "pip install" not in caplog.text


def test_writes_after_a_reset_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """A stream may write many events before the event loop says that its connection is lost."""

    async def write_after_a_reset() -> None:
        loop = asyncio.get_running_loop()
        here, there = socket.create_server(("127.0.0.1", 0)), socket.socket()
        with here, there:
            there.connect(here.getsockname())
            accepted, _ = here.accept()
            transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
            connection = lingering.LingeringTransport(transport, loop, lambda: False)
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for _ in range(20):
            connection.write(b"data: {}")

    asyncio.run(write_after_a_reset())
    assert not caplog.records
