"""States of the server: starting, failed, draining; clients that disconnect."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest

from hearthd.server.services.language_service import LocalLanguageService
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime, open_gate
from tests.patience import PATIENCE, wait_until
from tests.server import fakes
from tests.server.generate_client import LIBRARY, VOCAB, answer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        yield client


def test_health_is_ok_after_the_self_test(client: httpx.Client) -> None:
    response = client.get("/health")
    assert response.status_code == 200
    data = response.json()
    assert data["status"] == "ok"
    assert data["self_test"]["passed"] is True
    assert data["self_test"]["steps"] == 3
    assert data["model"] == {
        "architecture": "fake",
        "precision": "f32",
        "vocab_size": VOCAB,
        "context": 64,
        "target": "host",
    }
    assert data["version"]


def refused(client: httpx.Client) -> tuple[str, str]:
    """The status word and the message of a server that takes no requests."""
    response = client.post("/generate", json={"prompt": "x"})
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "unavailable_error"
    assert client.get("/health").status_code == 200
    health = client.get("/health/ready")
    assert health.status_code == 503
    assert response.json()["error"]["message"] == health.json()["message"]
    return health.json()["status"], health.json()["message"]


def test_requests_are_rejected_until_the_self_test_has_passed() -> None:
    gate = threading.Event()
    with fakes.running(fakes.fake_service(LIBRARY, gate=gate), wait=False) as client:
        assert refused(client)[0] == "starting"
        assert client.get("/health").json()["self_test"] is None
        gate.set()
        wait_until(lambda: client.get("/health/ready").status_code == 200)
        assert answer(client, max_tokens=1)["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("spread", [2.0, math.nan])
def test_requests_are_rejected_after_a_failed_self_test(spread: float) -> None:
    good = FakeRuntime(vocab_size=VOCAB, context=64)
    wrong = FakeRuntime(vocab_size=VOCAB, context=64, spread=spread)
    manifest = fakes.manifest_of(good)
    with fakes.running(
        LocalLanguageService(wrong, Tokenizer(LIBRARY, bos=fakes.BOS), manifest)
    ) as client:
        status, message = refused(client)
        assert status == "self_test_failed"
        assert "the self-test failed: a value differs by" in message
        self_test = client.get("/health").json()["self_test"]
        assert self_test["passed"] is False
        assert (self_test["largest_difference"] is None) == math.isnan(spread)


def test_while_draining_accepted_requests_are_answered() -> None:
    gate = open_gate()
    service = fakes.fake_service(LIBRARY, gate=gate)
    with fakes.running(service) as client, ThreadPoolExecutor(3) as pool:
        gate.clear()
        accepted = [pool.submit(answer, client, max_tokens=30, seed=n) for n in range(3)]
        wait_until(lambda: service.engine._admission.accepted == 3)
        service.drain()
        assert refused(client)[0] == "draining"
        gate.set()
        assert [f.result()["usage"]["completion_tokens"] for f in accepted] == [30] * 3


@pytest.mark.parametrize("streamed", [False, True])
def test_a_disconnect_frees_the_slot(streamed: bool) -> None:
    service = fakes.fake_service(LIBRARY, delay=0.02, context=5000)
    body = {"prompt": "the dog", "max_tokens": 4000, "stream": streamed}
    with fakes.running(service) as client:
        if streamed:
            with client.stream("POST", "/generate", json=body) as response:
                lines = response.iter_lines()  # kept: httpx disconnects when it is collected
                next(lines)
                assert not service.idle
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/generate", json=body, timeout=0.3)
        wait_until(lambda: service.idle)
        began = time.monotonic()
        answer(client, max_tokens=2)
        assert time.monotonic() - began < PATIENCE  # the whole answer takes longer
