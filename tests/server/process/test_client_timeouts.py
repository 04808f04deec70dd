"""Clients that take for ever over something: each is cut off in time, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import httpx
import pytest
from fastapi import FastAPI

from hearthd.server.process import client_timeouts, draining_server
from hearthd.server.process.client_timeouts import TimedConnection
from hearthd.server.process.draining_server import DrainingServer
from tests.by_day import first_by_day
from tests.patience import PATIENCE, wait_until
from tests.server import fakes
from tests.server.api.middleware.test_abuse import connect, request
from tests.server.api.operator.test_operator_routes import wait_until_free
from tests.server.certificates import certificate, tls
from tests.server.generate_client import LIBRARY, answer
from tests.server.tls import trusting

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket
    from collections.abc import Iterator

    from hearthd.server.process.listening import Tls

CLIENT_TIMEOUT = 0.5
# The timeout, and a busy machine.
SOON = CLIENT_TIMEOUT + 20


# TLS has more that can go wrong: the same over plain HTTP is tested at night.
@pytest.fixture(params=[pytest.param("http", marks=pytest.mark.nightly), "https"])
def security(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tls | None:
    """The server of a test looks ten times a second for slow clients, so that none waits long."""
    monkeypatch.setattr(draining_server, "_TICKS_PER_SECOND", 1)
    return tls() if request.param == "https" else None


@pytest.fixture
def client(security: Tls | None) -> Iterator[httpx.Client]:
    service = fakes.fake_service(LIBRARY, context=3000)
    with fakes.running(service, client_timeout=CLIENT_TIMEOUT, tls=security) as client:
        yield client


def seconds_until_closed(connection: socket.socket, began: float, sends: bytes = b"") -> float:
    """How long the server bears a client that sends a byte every 50 ms, and then no more.

    `began` is before the server began to count.
    """
    connection.settimeout(0.05)
    rest = iter(sends)
    with contextlib.suppress(ConnectionError):
        while time.monotonic() - began < SOON:
            with contextlib.suppress(TimeoutError):
                if not connection.recv(4096):
                    break
            if (byte := next(rest, None)) is not None:
                connection.sendall(bytes([byte]))
    return time.monotonic() - began


HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 1000
BODY = b'{"prompt": "' + b"x" * 1000


@pytest.mark.parametrize(
    ("at_once", "slowly"),
    [(b"", b""), (b"", HEAD), (request(b"", length=5000), BODY), (request(b"", length=5000), b"")],
    ids=["silent", "head", "body", "no body"],
)
def test_a_request_that_is_not_finished_in_time_is_closed(
    client: httpx.Client, at_once: bytes, slowly: bytes
) -> None:
    began = time.monotonic()
    with connect(client) as slow:
        slow.sendall(at_once)
        assert CLIENT_TIMEOUT < seconds_until_closed(slow, began, slowly) < SOON
    answer(client, max_tokens=1)


def test_a_large_body_gets_more_time(client: httpx.Client) -> None:
    body = b'{"prompt": "the dog", "max_tokens": 2}' + b" " * 4000
    with connect(client) as slow:
        slow.sendall(request(b"", length=len(body)))
        for start in range(0, len(body), 500):
            time.sleep(0.25)  # 2000 bytes a second
            slow.sendall(body[start : start + 500])
        assert slow.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_stops_arriving_is_closed(client: httpx.Client) -> None:
    """However much of it was sent before: it takes memory."""
    with connect(client) as slow:
        slow.sendall(request(b"", length=60_001))
        time.sleep(0.1)
        began = time.monotonic()
        slow.sendall(b" " * 60_000)
        assert CLIENT_TIMEOUT < seconds_until_closed(slow, began) < SOON
    answer(client, max_tokens=1)


@pytest.mark.parametrize(
    ("tokens", "head"),
    [(2000, b""), (20, b""), (20, b"Connection: close\r\n")],
    ids=["of a long answer", "of a short answer", "of the last answer"],
)
def test_a_client_that_never_reads_is_closed(
    security: Tls | None, tokens: int, head: bytes
) -> None:
    service = fakes.fake_service(LIBRARY, context=3000, slots=2)
    fields = {"prompt": "x", "max_tokens": tokens, "logprobs": 20, "stream": True}
    body = json.dumps(fields).encode()
    with (
        fakes.running(
            service, client_timeout=CLIENT_TIMEOUT, send_buffer=4096, tls=security
        ) as client,
        connect(client, receive_buffer=4096) as slow,
    ):
        began = time.monotonic()
        slow.sendall(request(body).replace(b"Host:", head + b"Host:"))
        assert slow.recv(1) == b"H"
        answer(client, max_tokens=1)
        wait_until(lambda: not _established(slow))
        assert time.monotonic() - began > CLIENT_TIMEOUT
        wait_until_free(client)


def test_the_kernel_keeps_no_answer_for_a_client_that_never_reads(security: Tls | None) -> None:
    """The whole answer fits into the kernel's buffers, so the connection is idle."""
    service = fakes.fake_service(LIBRARY, context=3000)
    fields = {"prompt": "x", "max_tokens": 400, "logprobs": 20, "stream": True}
    with (
        fakes.running(service, client_timeout=CLIENT_TIMEOUT, tls=security) as client,
        connect(client, receive_buffer=4096) as slow,
    ):
        slow.sendall(request(json.dumps(fields).encode()))
        assert slow.recv(1) == b"H"
        wait_until_free(client, SOON + 5)
        deadline = time.monotonic() + SOON
        while _established(slow):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_client_that_never_reads_gives_up_its_slot(security: Tls | None) -> None:
    """The kernel has room for the whole answer, which takes a minute."""
    service = fakes.fake_service(LIBRARY, context=3000, delay=0.02)
    fields = {"prompt": "x", "max_tokens": 2900, "logprobs": 20, "stream": True}
    with (
        fakes.running(service, client_timeout=CLIENT_TIMEOUT, tls=security) as client,
        connect(client, receive_buffer=4096) as slow,
    ):
        slow.sendall(request(json.dumps(fields).encode()))
        assert slow.recv(1) == b"H"
        wait_until_free(client, SOON + 5)


def test_a_client_that_reads_slowly_keeps_its_slot(security: Tls | None) -> None:
    service = fakes.fake_service(LIBRARY, context=3000, delay=0.02)
    fields = {"prompt": "x", "max_tokens": 2900, "logprobs": 20, "stream": True}
    with (
        fakes.running(service, client_timeout=CLIENT_TIMEOUT, tls=security) as client,
        connect(client) as slow,
    ):
        slow.sendall(request(json.dumps(fields).encode()))
        began = time.monotonic()
        while time.monotonic() - began < 3 * CLIENT_TIMEOUT:
            assert slow.recv(4096)
            time.sleep(CLIENT_TIMEOUT / 10)
        assert any(slot["is_processing"] for slot in client.get("/slots").json())


@pytest.mark.nightly
@pytest.mark.parametrize("reads", [True, False])
def test_a_system_that_does_not_say_what_was_read(
    monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """macOS and Windows: a client reads as long as the bytes that are not yet sent change."""
    monkeypatch.setattr(client_timeouts, "sent_bytes", lambda _: None)
    service = fakes.fake_service(LIBRARY, context=3000, slots=2)
    fields = {"prompt": "x", "max_tokens": 2000, "logprobs": 20, "stream": True}
    with (
        fakes.running(service, client_timeout=CLIENT_TIMEOUT, send_buffer=4096) as client,
        connect(client, receive_buffer=4096) as slow,
    ):
        slow.sendall(request(json.dumps(fields).encode()))
        began = time.monotonic()
        waits = 6 * CLIENT_TIMEOUT if reads else SOON
        while time.monotonic() - began < waits and (reads or _established(slow)):
            if reads:
                assert slow.recv(1024)
            time.sleep(CLIENT_TIMEOUT / 10)
        assert _established(slow) == reads


@pytest.mark.nightly
def test_idle_connections_cost_no_system_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of them would delay every request, once a second."""
    asked: list[TransportSocket | None] = []
    sent = client_timeouts._sent

    def count(connection: TransportSocket | None) -> tuple[int, int] | None:
        asked.append(connection)
        return sent(connection)

    monkeypatch.setattr(client_timeouts, "_sent", count)
    service = fakes.fake_service(LIBRARY, context=3000, delay=0.02)
    with fakes.running(service, client_timeout=30) as client, contextlib.ExitStack() as idle:
        for _ in range(20):
            idle.enter_context(connect(client))
        time.sleep(2)
        assert not asked
        answer(client, max_tokens=100)
        assert len(asked) in range(1, 5)  # once a second


def test_connections_are_checked_a_few_at_a_time() -> None:
    """All of thousands at once would delay every request, once a second."""
    server = DrainingServer(FastAPI(), mock.Mock())
    server.config.load()
    connections = [mock.Mock(spec=TimedConnection) for _ in range(25)]
    server.server_state.connections.update(connections)

    async def checks_by_tick() -> list[int]:
        counts = [0]
        for tick in range(10):
            await server.on_tick(tick)
            counts.append(sum(each.close_if_timed_out.call_count for each in connections))
        return [after - before for before, after in itertools.pairwise(counts)]

    assert max(asyncio.run(checks_by_tick())) <= 3
    assert [each.close_if_timed_out.call_count for each in connections] == [1] * 25


def test_a_connection_that_was_closed_meanwhile_is_not_checked() -> None:
    server = DrainingServer(FastAPI(), mock.Mock())
    server.config.load()
    connections = [mock.Mock(spec=TimedConnection) for _ in range(25)]
    server.server_state.connections.update(connections)

    async def close_all_after_a_tick() -> None:
        await server.on_tick(0)
        server.server_state.connections.clear()
        for tick in range(1, 10):
            await server.on_tick(tick)

    asyncio.run(close_all_after_a_tick())
    assert sum(each.close_if_timed_out.call_count for each in connections) == 3


def _established(connection: socket.socket) -> bool:
    """Whether the kernel has the other end of a local connection open."""
    ends = [
        f":{address[1]:04X}" for address in (connection.getpeername(), connection.getsockname())
    ]
    for line in Path("/proc/net/tcp").read_text().splitlines():
        fields = line.split()
        if [fields[1][-5:], fields[2][-5:]] == ends:
            return fields[3] == "01"
    return False


@pytest.mark.parametrize(
    "handshake", first_by_day([True, None, False]), ids=["https", "http", "no handshake"]
)
def test_idle_connections_are_closed_when_there_are_too_many(
    handshake: bool | None, tmp_path: Path
) -> None:
    """Connections without a handshake can arrive faster than they start on a busy machine.

    Of those that wait, the newest of the busiest address are closed: see accept_queue.py. So the
    client that is answered has another address.
    """
    files = 100
    own_address = None if handshake else "127.0.0.2"

    # The end of this time would close the idle connections, too.
    arguments = ["--client-timeout", str(10 * PATIENCE)]
    arguments += [] if handshake is None else map(str, certificate(tmp_path))
    process = _slow_server(files, arguments)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    try:
        with (
            contextlib.ExitStack() as idle,
            httpx.Client(
                base_url=address,
                timeout=PATIENCE,
                transport=httpx.HTTPTransport(verify=trusting(), local_address=own_address),
            ) as client,
        ):
            for _ in range(3 * files):
                if handshake is False:
                    target = (client.base_url.host, client.base_url.port)
                    idle.enter_context(socket.create_connection(target, timeout=PATIENCE))
                else:
                    idle.enter_context(connect(client))
                if not handshake:
                    time.sleep(0.01)  # until it starts: the queue closes none of them
            before = _processor_seconds(process.pid)
            began = time.monotonic()
            answer(client, max_tokens=1)
            assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < files
            time.sleep(1)
            # It does not run in circles, for a file that cannot be had.
            assert _processor_seconds(process.pid) - before < (time.monotonic() - began) / 2
    finally:
        process.kill()
        process.communicate()


def _slow_server(files: int, arguments: list[str]) -> subprocess.Popen[str]:
    """A server process that may open `files` files at once."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    return subprocess.Popen(
        [sys.executable, "-m", "tests.server.slow_server", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=limited,
    )


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
