"""The end of a server: who may finish, who is cancelled, and who cannot hold it up."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest

from hearthd.server.app import create_app
from hearthd.server.process import draining_server as serving
from hearthd.server.process.client_timeouts import TimedConnection
from hearthd.server.process.draining_server import DrainingServer
from hearthd.server.process.listening import bind, url
from tests.patience import PATIENCE, wait_until
from tests.server import fakes
from tests.server.certificates import tls
from tests.server.tls import encrypted, trusting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.server.process.listening import Tls
    from hearthd.server.services.language_service import LanguageService

LIBRARY = fakes.gemma_like()


@pytest.fixture(params=["http", "https"])
def security(request: pytest.FixtureRequest) -> Tls | None:
    return tls() if request.param == "https" else None


@contextlib.contextmanager
def shutting_down(
    service: LanguageService, *, after: float, security: Tls | None = None
) -> Iterator[tuple[DrainingServer, str]]:
    """A server in a thread and its address; a signal in the block must end it within 20 s."""
    ready = threading.Event()
    bound = bind("127.0.0.1", 0)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    pool = fakes.pool(service)
    app = create_app(pool, on_start=ready.set)
    server = DrainingServer(app, pool, shutdown_timeout=after, tls=security)
    address = url(bound, security)
    thread = threading.Thread(target=server.serve_on, args=(bound,))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield server, address
    finally:
        thread.join(20)
        ended = not thread.is_alive()
        if not ended:  # a second signal, so that no test hangs
            server.handle_exit(15, None)
            thread.join(PATIENCE)
        assert ended


def test_a_request_is_cancelled_with_an_error_after_the_shutdown_timeout(
    security: Tls | None,
) -> None:
    service = fakes.fake_service(LIBRARY, delay=0.02, context=5000)
    body = {"prompt": "the dog", "max_tokens": 4000, "stream": True}
    with (
        shutting_down(service, after=0.3, security=security) as (server, address),
        httpx.Client(base_url=address, timeout=PATIENCE, verify=trusting()) as client,
    ):
        with client.stream("POST", "/generate", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            signalled = time.monotonic()
            server.handle_exit(15, None)
            rest = [line for line in lines if line]
            assert 0.2 < time.monotonic() - signalled < PATIENCE  # the answer takes longer
        assert rest[-2] == "event: error"
        error = json.loads(rest[-1].removeprefix("data: "))["error"]
        assert error["code"] == 503
        assert "before the answer was complete" in error["message"]


def test_a_cancelled_request_gets_its_error_after_a_slow_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = fakes.fake_service(LIBRARY, context=5000)
    body = {"prompt": "the dog", "max_tokens": 4000}
    with (
        shutting_down(service, after=0) as (server, address),
        ThreadPoolExecutor() as pool,
    ):
        monkeypatch.setattr(service._runtime, "delay", 1.2)
        asked = pool.submit(httpx.post, f"{address}/generate", json=body, timeout=PATIENCE)
        wait_until(lambda: not service.idle)
        server.handle_exit(15, None)
        answer = asked.result()
    assert answer.status_code == 503
    assert "before the answer was complete" in answer.json()["error"]["message"]


def test_running_and_waiting_streams_get_an_error_at_the_shutdown_timeout(
    monkeypatch: pytest.MonkeyPatch, security: Tls | None
) -> None:
    service = fakes.fake_service(LIBRARY, context=5000, slots=2, batch=2)
    body = {"prompt": "the dog", "max_tokens": 4000, "stream": True}
    with (
        shutting_down(service, after=0, security=security) as (server, address),
        httpx.Client(base_url=address, timeout=PATIENCE, verify=trusting()) as client,
        ThreadPoolExecutor(6) as pool,
        handled_by(server),
    ):
        monkeypatch.setattr(service._runtime, "delay", 1.2)
        sent = [pool.submit(client.post, "/generate", json=body) for _ in range(6)]
        wait_until(lambda: service.state().queued >= 4)
        server.handle_exit(15, None)
        for response in sent:
            *_, name, data = [line for line in response.result().text.splitlines() if line]
            assert name == "event: error"
            assert json.loads(data.removeprefix("data: "))["error"]["code"] == 503


@contextlib.contextmanager
def handled_by(server: DrainingServer) -> Iterator[None]:
    """The server handles SIGTERM, by which sse-starlette finds it."""
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_client_that_never_reads_does_not_delay_shutdown(
    monkeypatch: pytest.MonkeyPatch, security: Tls | None
) -> None:
    monkeypatch.setattr(serving, "_CANCEL_GRACE", 1)
    service = fakes.fake_service(LIBRARY, context=3000)
    idle_when_cancelled: list[bool] = []
    cancel = service.cancel

    def cancel_and_note() -> None:
        idle_when_cancelled.append(service.idle)
        cancel()

    monkeypatch.setattr(service, "cancel", cancel_and_note)
    body = json.dumps({"prompt": "x", "max_tokens": 2500, "logprobs": 20, "stream": True})
    head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    with (
        contextlib.ExitStack() as clients,  # left when the server has ended
        shutting_down(service, after=0.2, security=security) as (server, address),
    ):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        target = httpx.URL(address)
        connection.connect((target.host, target.port))
        client = clients.enter_context(encrypted(connection, target.scheme))
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n{body}".encode())
        assert client.recv(1) == b"H"
        # Only what fills all buffers holds anything, and a busy machine needs its time for that.
        wait_until(lambda: _full(server))
        server.handle_exit(15, None)
    assert not idle_when_cancelled[0]  # at the deadline, the client was still being written to


def _full(server: DrainingServer) -> bool:
    """Whether more cannot be written to some client."""
    connections = server.server_state.connections
    return any(isinstance(one, TimedConnection) and one.flow.write_paused for one in connections)


def test_what_requests_freed_is_returned_to_the_system_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    returned = threading.Semaphore(0)
    monkeypatch.setattr(serving, "_TICKS_PER_TRIM", 1)
    monkeypatch.setattr(serving, "free_memory", returned.release)
    with shutting_down(fakes.fake_service(LIBRARY), after=1) as (server, address):
        for _ in range(2):
            assert httpx.get(f"{address}/health").is_success
            assert returned.acquire(timeout=PATIENCE)
        assert not returned.acquire(timeout=0.5)
        server.handle_exit(15, None)
