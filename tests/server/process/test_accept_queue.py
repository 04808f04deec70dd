"""Clients that connect faster than connections start keep no other client waiting."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
import sys
import threading
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from typing_extensions import override

from hearthd.server.process import accept_queue
from hearthd.server.process.accept_queue import AcceptQueue
from hearthd.server.process.client_timeouts import TimedConnection
from hearthd.server.process.connection_memory import network_of
from tests.patience import PATIENCE, wait_until
from tests.server.process.test_fault_isolation import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import httpx

    from hearthd.server.process.draining_server import DrainingServer

__all__ = ["running"]  # a fixture

FLOODER, OTHER = "127.0.0.2", "127.0.0.1"


class Recorder(asyncio.Protocol):
    """A connection that appends its transport to a list."""

    def __init__(self, started: list[asyncio.BaseTransport]) -> None:
        self._started = started

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._started.append(transport)


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    with socket.create_server(("0.0.0.0", 0), backlog=1000) as bound:
        bound.setblocking(False)
        yield bound


@pytest.fixture
def clients() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as clients:
        yield clients


def listening(bound: socket.socket) -> socket.socket:
    bound.setblocking(False)
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    return bound


def connected(bound: socket.socket, source: str) -> socket.socket:
    client = socket.socket()
    client.settimeout(PATIENCE)
    client.bind((source, 0))
    client.connect(("127.0.0.1", bound.getsockname()[1]))
    return client


def started_by(
    sockets: Iterable[socket.socket],
    count: int,
    limit: int = 1000,
    then: Callable[[], object] = lambda: None,
) -> list[str]:
    """The addresses of the clients of a queue. `then` is called when `count` have started."""
    started: list[asyncio.BaseTransport] = []

    async def run() -> list[str]:
        queue = AcceptQueue(lambda: Recorder(started), limit)
        queue.accept_from(sockets)
        async with asyncio.timeout(PATIENCE):
            while len(started) < count:
                await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        then()
        queue.close()
        addresses = [transport.get_extra_info("peername") for transport in started]
        for transport in started:
            transport.close()
        await asyncio.sleep(0)
        return [address[0] if address else "" for address in addresses]

    return asyncio.run(run())


def test_addresses_take_turns(bound: socket.socket, clients: contextlib.ExitStack) -> None:
    for address in (*[FLOODER] * 50, OTHER, OTHER):
        clients.enter_context(connected(bound, address))
    started = started_by([bound], 52)
    assert started[:5] == [FLOODER, OTHER, FLOODER, OTHER, FLOODER]
    assert started[5:] == [FLOODER] * 47


def test_a_server_lets_addresses_take_turns(
    running: tuple[DrainingServer, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = running
    accepted: list[str] = []

    def accept(self: TimedConnection, tcp: asyncio.Transport) -> None:
        accepted.append(tcp.get_extra_info("peername")[0])
        _accepted(self, tcp)

    _accepted = TimedConnection.accepted
    monkeypatch.setattr(TimedConnection, "accepted", accept)
    target = client.base_url.host, client.base_url.port
    connected = threading.Event()
    with contextlib.ExitStack() as crowd:
        assert server._loop is not None
        server._loop.call_soon_threadsafe(connected.wait, PATIENCE)
        for address in (*[FLOODER] * 50, OTHER):
            crowd.enter_context(socket.create_connection(target, PATIENCE, (address, 0)))
        connected.set()
        wait_until(lambda: len(accepted) == 51)
    assert OTHER in accepted[:6]


def test_a_socket_in_the_file_system_takes_turns_with_addresses(
    bound: socket.socket, clients: contextlib.ExitStack, tmp_path: Path
) -> None:
    local = clients.enter_context(socket.socket(socket.AF_UNIX))
    local.setblocking(False)
    local.bind(str(tmp_path / "socket"))
    local.listen()
    for _ in range(50):
        clients.enter_context(connected(bound, FLOODER))
    clients.enter_context(socket.socket(socket.AF_UNIX)).connect(str(tmp_path / "socket"))
    started = started_by([bound, local], 51)
    assert "" in started[:6]


@pytest.mark.skipif(sys.platform != "linux", reason="names outside the file system are Linux's")
def test_a_client_of_a_socket_in_the_file_system_may_have_a_name(
    clients: contextlib.ExitStack, tmp_path: Path
) -> None:
    local = clients.enter_context(socket.socket(socket.AF_UNIX))
    local.setblocking(False)
    local.bind(str(tmp_path / "socket"))
    local.listen()
    for name in ("", str(tmp_path / "client"), f"\0{tmp_path}"):
        client = clients.enter_context(socket.socket(socket.AF_UNIX))
        if name:
            client.bind(name)
        client.connect(str(tmp_path / "socket"))
        assert network_of(client.getsockname()) == ""
    assert len(started_by([local], 3)) == 3


@pytest.mark.parametrize("resets", [False, True])
def test_clients_that_have_left_are_skipped(
    bound: socket.socket, clients: contextlib.ExitStack, resets: bool
) -> None:
    for _ in range(200):
        left = connected(bound, FLOODER)
        left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", resets, 0))
        left.close()
    clients.enter_context(connected(bound, FLOODER))
    assert started_by([bound], 1) == [FLOODER]


def test_a_request_of_a_client_that_has_left_is_handled(bound: socket.socket) -> None:
    with connected(bound, OTHER) as client:
        client.sendall(b"GET")
    assert started_by([bound], 1) == [OTHER]


def test_too_many_are_closed_where_most_come_from(
    bound: socket.socket, clients: contextlib.ExitStack
) -> None:
    flood = [clients.enter_context(connected(bound, FLOODER)) for _ in range(50)]
    few = [clients.enter_context(connected(bound, OTHER)) for _ in range(3)]

    def check() -> None:
        for client in (*flood[:7], *few):
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)

    started = started_by([bound], 10, limit=10, then=check)
    assert sorted(started) == [OTHER] * 3 + [FLOODER] * 7
    for client in flood[7:]:
        client.setblocking(True)
        assert client.recv(1) == b""


def test_a_queue_that_ends_closes_who_waits(
    bound: socket.socket, clients: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accept_queue, "_STARTED_AT_ONCE", 0)
    client = clients.enter_context(connected(bound, OTHER))
    assert started_by([bound], 0) == []
    assert client.recv(1) == b""


def test_accepting_goes_on_when_files_can_be_opened_again(
    clients: contextlib.ExitStack,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(accept_queue, "_RETRY_SECONDS", 0.01)
    missing = [1, 2]

    class Bound(socket.socket):
        @override
        def accept(self) -> tuple[socket.socket, Any]:
            if missing:
                raise OSError(errno.EMFILE, missing.pop())
            return super().accept()

    bound = clients.enter_context(Bound())
    clients.enter_context(connected(listening(bound), OTHER))
    assert started_by([bound], 1) == [OTHER]
    assert caplog.text.count("accepting a connection failed") == 1


def test_an_error_keeps_no_accepted_client_waiting(clients: contextlib.ExitStack) -> None:
    """On Linux, accept raises errors of the network that a connection met meanwhile."""
    errors = [OSError(errno.EPROTO, "Protocol error")]

    class Bound(socket.socket):
        @override
        def accept(self) -> tuple[socket.socket, Any]:
            try:
                return super().accept()
            except BlockingIOError:
                if errors:
                    raise errors.pop() from None
                raise

    bound = clients.enter_context(Bound())
    clients.enter_context(connected(listening(bound), OTHER))
    assert started_by([bound], 1) == [OTHER]
    assert not errors


def test_an_event_loop_without_readers_accepts_itself(bound: socket.socket) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        with mock.patch.object(loop, "remove_reader", side_effect=NotImplementedError):
            AcceptQueue(mock.Mock(), 1).accept_from([bound])

    asyncio.run(run())


def test_a_network_is_what_a_client_can_choose_addresses_of() -> None:
    assert network_of(("192.0.2.1", 80)) == "192.0.2.1"
    assert network_of(("::ffff:192.0.2.1", 80, 0, 0)) == "::ffff:192.0.2.1"
    assert network_of(("fe80::1%lo", 80, 0, 1)) == network_of(("fe80::2", 80, 0, 1))
    assert network_of(("2001:db8::1", 80, 0, 0)) != network_of(("2001:db8:0:1::1", 80, 0, 0))
    assert network_of("") == network_of(None) == ""
