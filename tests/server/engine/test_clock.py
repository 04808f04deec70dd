"""The wall clock may jump: deadlines, timings and retries use the monotonic clock."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fake_runtime import open_gate
from tests.patience import wait_until
from tests.server import fakes
from tests.server.api.operator.test_operator_routes import figure, figures
from tests.server.generate_client import LIBRARY

DAY = 86400


@pytest.fixture(autouse=True)
def _jumping(monkeypatch: pytest.MonkeyPatch) -> None:
    """time.time() jumps by a day, forwards or backwards, from call to call."""
    true, jumps = time.time, itertools.cycle((DAY, 0, -DAY, 0))
    monkeypatch.setattr(time, "time", lambda: true() + next(jumps))


def test_jumps_of_the_wall_clock_change_no_deadline_timing_or_retry() -> None:
    gate = open_gate()
    service = fakes.fake_service(LIBRARY, delay=0.02, slots=1, gate=gate)
    service.engine._admission.queue_limit = 0
    with fakes.running(service) as client, ThreadPoolExecutor(1) as pool:
        body = {"prompt": "the dog", "max_tokens": 60}
        began = time.monotonic()
        late = client.post("/generate", json={**body, "timeout_ms": 300}).json()
        assert late["finish_reason"] == "timeout"
        assert time.monotonic() - began > 0.25
        whole = client.post(
            "/generate", json={**body, "max_tokens": 8, "timeout_ms": 60_000}
        ).json()
        assert whole["finish_reason"] == "length"
        for timings in (late["timings"], whole["timings"]):
            assert 0 <= timings["queue_ms"] + timings["prefill_ms"] + timings["decode_ms"] < 30_000
        chat = client.post("/v1/completions", json={**body, "max_tokens": 1}).json()
        assert abs(chat["created"] - time.time()) <= 3 * DAY
        gate.clear()
        running = pool.submit(client.post, "/generate", json={**body, "max_tokens": 1})
        wait_until(lambda: not service.idle)
        refused = client.post("/generate", json=body)
        gate.set()
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["Retry-After"]) < 60
        assert running.result().status_code == 200
        metrics = figures(client)
        assert figure(metrics, "queue_seconds_sum") < 600
        assert figure(metrics, "time_to_first_token_seconds_sum") < 600
