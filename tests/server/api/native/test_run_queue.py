"""The queue of POST /run: concurrent calls, disconnects and shutdown."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx
import numpy as np
import pytest

from tests.patience import PATIENCE, wait_until
from tests.server import fakes, functions
from tests.server.api.operator.test_operator_routes import Figures, figure, figures
from tests.server.functions import FakeFunctions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(functions.service()) as client:
        yield client


class Gated:
    """A server whose functions wait at a gate, and clients in threads."""

    def __init__(self, queue_limit: int) -> None:
        self.runtime = FakeFunctions()
        self.service = functions.service(self.runtime, queue_limit=queue_limit)
        self.pool = ThreadPoolExecutor(8)

    def close(self) -> None:
        """Close the gate, after the self-test."""
        self.runtime.gate.clear()
        self.runtime.calls.clear()

    def ask(self, client: httpx.Client, number: int) -> Any:
        """Send a request on a new connection; return the future of its answer."""
        x = np.full((2, 3), number, np.float32).tolist()
        body = {"function": "step", "inputs": {"x": x}}
        return self.pool.submit(httpx.post, f"{client.base_url}/run", json=body, timeout=PATIENCE)

    def queued(self) -> int:
        return self.service.calls.state().queued


@pytest.fixture
def gated() -> Iterator[Gated]:
    gated = Gated(queue_limit=2)
    yield gated
    gated.runtime.gate.set()
    gated.pool.shutdown()


def test_a_function_that_panics_is_an_error_of_its_call(client: httpx.Client) -> None:
    """A panic of a library in another language is no Exception."""
    call = {"function": "step", "inputs": {"x": X.tolist()}}
    with mock.patch.object(FakeFunctions, "run", side_effect=BaseException("a panic")):
        failed = client.post("/run", json=call)
    assert failed.status_code == 500
    assert "step failed: BaseException: a panic" in failed.json()["error"]["message"]
    assert client.post("/run", json=call).is_success


def test_calls_run_one_at_a_time_and_a_full_queue_rejects(gated: Gated) -> None:
    with fakes.running(gated.service) as client:
        gated.close()
        answers = []
        for number in range(3):
            answers.append(gated.ask(client, number))
            wait_until(lambda: gated.queued() + len(gated.runtime.calls) == len(answers))
        assert gated.runtime.calls == [0]
        refusal = gated.ask(client, 9).result()
        assert refusal.status_code == 429
        assert int(refusal.headers["Retry-After"]) >= 1
        error = refusal.json()["error"]
        assert (error["queued"], error["limit"]) == (2, 2)
        assert figure(figures(client), "slots_busy") == 1
        assert figure(figures(client), "queued") == 2
        gated.runtime.gate.set()
        for number, answer in enumerate(answers):
            assert answer.result().json()["outputs"]["y"][0][0] == 2 * number
        assert gated.runtime.calls == [0, 1, 2]


def test_a_waiting_call_of_a_disconnected_client_never_runs(gated: Gated) -> None:
    with fakes.running(gated.service) as client:
        gated.close()
        first = gated.ask(client, 1)
        wait_until(lambda: gated.runtime.calls == [1])
        body = json.dumps({"function": "step", "inputs": {"x": X.tolist()}}).encode()
        head = f"POST /run HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as gone:
            gone.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            wait_until(lambda: gated.queued() == 1)
        wait_until(lambda: gated.queued() == 0)
        last = gated.ask(client, 3)
        wait_until(lambda: gated.queued() == 1)
        gated.runtime.gate.set()
        assert first.result().status_code == last.result().status_code == 200
        assert gated.runtime.calls == [1, 3]
        assert figure(figures(client), "runs_total", "step", "cancelled") == 1


def test_a_disconnect_during_the_request_is_not_an_error(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    before = figures(client)
    head = b"POST /run HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as sent:
        sent.sendall(head)

    def disconnected(metrics: Figures) -> float:
        return figure(metrics, "http_requests_total", "/run", "499")

    wait_until(lambda: disconnected(figures(client)) > disconnected(before))
    assert "error of the server's own" not in caplog.text


def test_accepted_calls_finish_after_a_signal(gated: Gated) -> None:
    with fakes.running(gated.service) as client:
        gated.close()
        answers = [gated.ask(client, 1)]
        wait_until(lambda: gated.runtime.calls == [1])
        answers.append(gated.ask(client, 2))
        wait_until(lambda: gated.queued() == 1)
        gated.service.drain()
        refusal = gated.ask(client, 3).result()
        assert refusal.status_code == 503
        assert client.get("/health").json()["status"] == "draining"
        assert not gated.service.idle
        gated.runtime.gate.set()
        assert [answer.result().status_code for answer in answers] == [200, 200]
        wait_until(lambda: gated.service.idle)


def test_waiting_calls_are_rejected_when_the_server_stops(gated: Gated) -> None:
    with fakes.running(gated.service) as client:
        gated.close()
        running = gated.ask(client, 1)
        wait_until(lambda: gated.runtime.calls == [1])
        waiting = gated.ask(client, 2)
        wait_until(lambda: gated.queued() == 1)
        gated.service.cancel()
        threading.Timer(0.1, gated.runtime.gate.set).start()
        assert running.result().status_code == 200
        assert waiting.result().status_code == 503
        assert "shut down before" in json.dumps(waiting.result().json())
        assert gated.runtime.calls == [1]


def test_the_bodies_of_all_calls_share_memory() -> None:
    """Small functions: nothing in them needs a large body."""
    body = b'{"function": "step", "inputs": {"x": [' + b"0," * 600_000 + b"0]}}"
    with fakes.running(functions.service()) as client:
        refused = client.post("/run", content=body)
        assert refused.status_code == 413
        assert "too many values" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("values", "body_limit", "memory"),
    [
        (6, 10 * 2**20, 32_000_000),
        (10**6, 10 * 2**20, 18 * 10 * 2**20),
        (10**6, 2**24, 256 * 10**6),
    ],
)
def test_the_largest_function_sets_the_memory_of_bodies(
    values: int, body_limit: int, memory: int
) -> None:
    pool = fakes.pool(functions.copying(values), max_body_bytes=body_limit)
    assert pool.request_memory == memory
