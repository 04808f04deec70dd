"""A real server process and real signals."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.by_day import first_by_day
from tests.patience import PATIENCE, wait_until
from tests.server.api.operator.test_operator_routes import figure, figures
from tests.server.generate_client import answer, stream

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.server.slow_server"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    try:
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", first_by_day([signal.SIGTERM, signal.SIGINT]))
def test_a_signal_finishes_accepted_requests_and_rejects_new_ones(
    server: tuple[subprocess.Popen[str], httpx.Client], number: signal.Signals
) -> None:
    process, client = server
    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(stream, client, max_tokens=20, seed=1)
        wait_until(lambda: bool(figure(figures(client), "slots_busy")))
        queued = pool.submit(answer, client, max_tokens=5, seed=2)
        wait_until(lambda: bool(figure(figures(client), "queued")))
        process.send_signal(number)
        wait_until(lambda: client.get("/health").json()["status"] == "draining")
        refused = client.post("/generate", json={"prompt": "x"})
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "unavailable_error"
        events = running.result()
        assert len([data for _, data in events if data.get("token_ids")]) == 20
        assert events[-1][1]["finish_reason"] == "length"
        assert queued.result()["usage"]["completion_tokens"] == 5
    assert process.wait(PATIENCE) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.mark.nightly
def test_a_signal_to_an_idle_server_ends_it_at_once(
    server: tuple[subprocess.Popen[str], httpx.Client],
) -> None:
    process, client = server
    answer(client, max_tokens=1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0  # sooner than the shutdown timeout


@pytest.mark.nightly
def test_a_second_signal_does_not_wait(
    server: tuple[subprocess.Popen[str], httpx.Client],
) -> None:
    process, client = server
    body = {"prompt": "x", "max_tokens": 60}
    with ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(client.post, "/generate", json={**body, "stream": stream})
            for stream in (True, False)
        ]
        wait_until(lambda: bool(figure(figures(client), "queued")))
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        for response in asked:
            with pytest.raises(httpx.HTTPError):
                response.result().raise_for_status()
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.mark.nightly
def test_under_load_every_accepted_request_is_answered(
    server: tuple[subprocess.Popen[str], httpx.Client],
) -> None:
    process, client = server
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(answer, client, max_tokens=15, seed=n) for n in range(8)]
        deadline = time.monotonic() + PATIENCE
        accepted, running = 0.0, 0.0
        while accepted < 8:
            assert time.monotonic() < deadline
            metrics = figures(client)
            running = figure(metrics, "slots_busy") + figure(metrics, "queued")
            accepted = running + figure(metrics, "completions_total", "length")
        assert running >= 1
        process.send_signal(signal.SIGTERM)
        for number, job in enumerate(jobs):
            data = job.result(timeout=PATIENCE)
            assert data["usage"]["completion_tokens"] == 15
            assert data["seed"] == number
    assert process.wait(PATIENCE) == 0


def test_sighup_serves_a_new_bundle_and_running_requests_finish_on_the_old_one(
    server: tuple[subprocess.Popen[str], httpx.Client],
) -> None:
    process, client = server
    before = client.get("/health").json()["bundle"]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(stream, client, max_tokens=40, seed=1)
        wait_until(lambda: bool(figure(figures(client), "slots_busy")))
        process.send_signal(signal.SIGHUP)
        health = wait_for_reload(client, None)
        assert health["last_reload"]["succeeded"] is True
        assert health["bundle"] != before
        assert running.result()[-1][1]["finish_reason"] == "length"
    process.send_signal(signal.SIGHUP)
    again = wait_for_reload(client, health["last_reload"])
    assert again["last_reload"]["succeeded"] is False
    assert again["bundle"] == health["bundle"]
    assert answer(client, max_tokens=1)["usage"]["completion_tokens"] == 1


def wait_for_reload(
    client: httpx.Client, latest: object, *, seconds: float = PATIENCE
) -> dict[str, Any]:
    """What /health says once there is another latest reload than this."""
    deadline = time.monotonic() + seconds
    while True:
        health: dict[str, Any] = client.get("/health").json()
        if health["last_reload"] != latest:
            return health
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.nightly
def test_a_server_ends_with_its_terminal() -> None:
    master, slave = os.openpty()

    def take_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup hands on that it is ignored
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, "-m", "tests.server.slow_server"],
        stdout=subprocess.PIPE,
        preexec_fn=take_terminal,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"http://")
        process.send_signal(signal.SIGHUP)  # the terminal is still there
        time.sleep(0.5)
        assert process.poll() is None
        os.close(slave)
        os.close(master)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()
