"""The memory of connections: clients without a key cannot use it up."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import httpx
import pytest

from hearthd.bundle import CONNECTION_MEMORY, REQUEST_MEMORY
from hearthd.server.app import create_app
from hearthd.server.process import client_timeouts
from hearthd.server.process.connection_memory import (
    ENCRYPTED,
    PLAIN,
    ConnectionMemory,
    memory_of_connections,
)
from hearthd.server.process.draining_server import DrainingServer
from hearthd.server.process.listening import bind, url
from hearthd.server.services.model_pool import ModelPool
from tests.patience import PATIENCE, wait_until
from tests.server import fakes
from tests.server.certificates import tls
from tests.server.generate_client import LIBRARY, answer
from tests.server.tls import encrypted, trusting

if TYPE_CHECKING:
    from collections.abc import Iterator

    Running = tuple[ConnectionMemory, httpx.Client]

HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 15_000
UNREAD = b"POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n" + b"x" * 60_000
HELLO = b"\x16\x03\x01\x3f\x00\x01\x00\x3e\xfc\x03\x03" + b"x" * 15_000
COUNT = 40


@pytest.fixture(params=["http", "https"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A server whose connections may take 1 MB, and its client."""
    memory = ConnectionMemory(limit=1_000_000, is_limited=True)
    ready = threading.Event()
    pool = ModelPool([fakes.deployed(fakes.fake_service(LIBRARY))], connection_memory=memory)
    security = tls() if request.param == "https" else None
    bound = bind("127.0.0.1", 0)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # of connections, too
    server = DrainingServer(create_app(pool, on_start=ready.set), pool, tls=security, memory=memory)
    thread = threading.Thread(target=server.serve_on, args=(bound,))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        with httpx.Client(
            base_url=url(bound, security), timeout=PATIENCE, verify=trusting()
        ) as client:
            yield memory, client
    finally:
        server.handle_exit(15, None)
        thread.join(PATIENCE)
        bound.close()


@pytest.mark.parametrize("sent", [HEAD, UNREAD, HELLO], ids=["head", "body", "handshake"])
def test_connections_stay_within_their_memory(running: Running, sent: bytes) -> None:
    memory, client = running
    target = (client.base_url.host, client.base_url.port)
    scheme = "http" if sent is HELLO else client.base_url.scheme
    with contextlib.ExitStack() as crowd:
        for _ in range(3 * COUNT):
            connection = socket.create_connection(target, timeout=PATIENCE)
            with contextlib.suppress(OSError):  # another one has closed it
                connection = encrypted(connection, scheme)
                connection.sendall(sent)
            crowd.enter_context(connection)
        for _ in range(3):
            answer(client, max_tokens=1)
            client.post("/none", content=b"x" * 10)
        assert memory.taken <= memory.limit + PLAIN + ENCRYPTED + 2 * len(sent)
    client.close()
    wait_until(lambda: memory.taken == 0)


def test_an_answer_that_is_not_yet_sent_is_not_cut(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_timeouts, "_CANDIDATES", 1000)  # all of them
    _, client = running
    target = (client.base_url.host, client.base_url.port)
    with contextlib.ExitStack() as crowd, socket.socket() as tcp:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        tcp.settimeout(PATIENCE)
        tcp.connect(target)
        reader = crowd.enter_context(encrypted(tcp, client.base_url.scheme))
        reader.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = reader.recv(100)
        for _ in range(3 * COUNT):
            crowd.enter_context(socket.create_connection(target, timeout=PATIENCE))
        client.get("/health")  # all are accepted
        while data := reader.recv(2**16):
            received += data
    assert received.partition(b"\r\n\r\n")[2] == client.get("/openapi.json").content


def test_a_silent_connection_is_counted_as_plain(running: Running) -> None:
    memory, client = running
    target = (client.base_url.host, client.base_url.port)
    with contextlib.ExitStack() as silent:
        for _ in range(10):
            silent.enter_context(socket.create_connection(target, timeout=PATIENCE))
        wait_until(lambda: memory.taken == 10 * PLAIN)
    wait_until(lambda: memory.taken == 0)


def test_the_memory_of_connections_is_a_part_of_the_contract() -> None:
    limited, free = (memory_of_connections(is_limited=limited) for limited in (True, False))
    assert limited.limit == CONNECTION_MEMORY + REQUEST_MEMORY // 2
    assert free.limit >= limited.limit
    for memory in (limited, free):
        memory.taken = memory.limit
    assert (limited.of_requests, free.of_requests) == (REQUEST_MEMORY // 2, 0)


def test_bodies_wait_for_memory_that_connections_take() -> None:
    memory = ConnectionMemory(limit=10**9, is_limited=True, taken=REQUEST_MEMORY)
    pool = ModelPool([fakes.deployed(fakes.fake_service(LIBRARY))], connection_memory=memory)
    with fakes.running(pool) as client:
        body = {"prompt": "the dog" + " " * 200_000, "max_tokens": 1}
        assert client.post("/generate", json=body).status_code == 503
        memory.taken = 0
        assert client.post("/generate", json=body).status_code != 503


def test_a_crowd_does_not_close_the_connections_of_others(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_timeouts, "_CANDIDATES", 1000)  # all of them
    memory, client = running
    target = (client.base_url.host, client.base_url.port)
    with contextlib.ExitStack() as crowd:
        other = crowd.enter_context(socket.create_connection(target, timeout=PATIENCE))
        wait_until(lambda: memory.taken > 0)
        for _ in range(3 * 120):
            source = ("127.0.0.2", 0)
            crowd.enter_context(socket.create_connection(target, PATIENCE, source))
        wait_until(lambda: memory.networks["127.0.0.2"] > 90)
        client.get("/health")
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)
        assert memory.taken <= memory.limit + PLAIN + ENCRYPTED
    client.close()
    wait_until(lambda: memory.taken == 0 and not memory.networks)
