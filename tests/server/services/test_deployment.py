"""A bundle that is replaced while it is served: no request is lost, each comes from one bundle."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.bundle import Corrupt
from hearthd.server.app import Guards
from hearthd.server.errors import NotReloaded
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.file_watch import FileWatch
from tests.by_day import first_by_day
from tests.patience import wait_until
from tests.server import fakes, functions
from tests.server.api.operator.test_operator_routes import figure, figures
from tests.server.fake_models import words
from tests.server.generate_client import LIBRARY

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from hearthd.server.services.language_service import LocalLanguageService
    from hearthd.server.services.service import Service

KEY = "a key of the operator"
KEYS = {"Authorization": f"Bearer {KEY}"}


def service(spread: float = 3.0, **fields: Any) -> LocalLanguageService:
    """Another `spread` is another bundle: other logits, another digest, the same sampled ids."""
    return fakes.fake_service(LIBRARY, spread=spread, slots=4, **fields)


def guarded(now: LocalLanguageService, *later: Any) -> Any:
    return fakes.running(now, guards=Guards(api_keys=(KEY,)), later=later)


def complete(client: httpx.Client, tokens: int = 10) -> dict[str, Any]:
    body = {"prompt": "the dog", "max_tokens": tokens, "temperature": 0, "logprobs": 0}
    response = client.post("/v1/completions", json=body, headers=KEYS)
    assert response.status_code == 200, response.text
    metrics: dict[str, Any] = response.json()
    return metrics


def reload(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/bundle/reload", headers=KEYS)


def test_no_request_is_lost_and_each_answer_comes_from_one_bundle() -> None:
    one, other = service(3.0, delay=0.003), service(2.0, delay=0.003)
    with guarded(one, other) as client, ThreadPoolExecutor(4) as pool:
        ending = threading.Event()
        answers: list[dict[str, Any]] = []

        def ask() -> None:
            while not ending.is_set():
                answers.append(complete(client))

        def wait_for_more() -> None:
            count = len(answers)
            wait_until(lambda: len(answers) > count + len(jobs))

        before = complete(client)
        jobs = [pool.submit(ask) for _ in range(4)]
        wait_for_more()
        done = reload(client)
        assert done.status_code == 200, done.text
        wait_for_more()
        ending.set()
        for job in jobs:
            job.result()
        after = complete(client)
        assert done.json()["bundle"] == after["system_fingerprint"] == other.fingerprint
        assert before["system_fingerprint"] == one.fingerprint
        expected = {one.fingerprint: words(before), other.fingerprint: words(after)}
        assert words(before) != words(after)
        assert {answer["system_fingerprint"] for answer in answers} == set(expected)
        for answer in answers:
            assert words(answer) == expected[answer["system_fingerprint"]]
        metrics = figures_with_key(client)
        assert figure(metrics, "completions_total", "length") == len(answers) + 2
        (info,) = [labels for name, labels in metrics if name == "hearth_info"]
        assert other.fingerprint in info


def figures_with_key(client: httpx.Client) -> Any:
    client.headers.update(KEYS)
    return figures(client)


@pytest.mark.nightly
def test_a_long_answer_finishes_on_its_first_bundle() -> None:
    one, other = service(3.0, delay=0.02), service(2.0)
    with guarded(one, other) as client, ThreadPoolExecutor(1) as pool:
        running = pool.submit(complete, client, 50)
        wait_until(lambda: not one.idle)
        assert reload(client).status_code == 200
        assert complete(client)["system_fingerprint"] == other.fingerprint
        assert not running.done()
        assert running.result()["system_fingerprint"] == one.fingerprint
        # When it is answered the older one ends.
        wait_until(lambda: one.unavailable() is not None)
        assert complete(client)["system_fingerprint"] == other.fingerprint


def wrong() -> LocalLanguageService:
    wrong_service = service(2.0)
    wrong_service._runtime.spread = 1.0  # type: ignore[attr-defined]
    return wrong_service


@pytest.mark.parametrize(
    ("later", "reason"),
    first_by_day(
        [
            (wrong, "the self-test failed: a value differs by"),
            (lambda: Corrupt("model.vmfb is missing"), "model.vmfb is missing"),
            (lambda: MemoryError(), "MemoryError"),
            (lambda: functions.service(), "of another kind"),
        ]
    ),
    ids=["self-test", "corrupt", "memory", "kind"],
)
def test_a_failed_reload_changes_nothing_and_health_says_why(later: Any, reason: str) -> None:
    one, good = service(3.0), service(2.0)
    with guarded(one, later(), good) as client:
        refused = reload(client)
        assert refused.status_code == 500
        assert reason in refused.json()["error"]["message"]
        health = client.get("/health").json()
        assert health["status"] == "ok"
        assert health["bundle"] == one.fingerprint == health["last_reload"]["bundle"]
        assert health["last_reload"]["succeeded"] is False
        assert reason in health["last_reload"]["message"]
        assert complete(client)["system_fingerprint"] == one.fingerprint
        assert reload(client).status_code == 200
        health = client.get("/health").json()
        assert health["last_reload"]["succeeded"] is True
        assert health["bundle"] == good.fingerprint


def test_reload_requires_a_key() -> None:
    with guarded(service(), service(2.0)) as client:
        assert client.post("/v1/bundle/reload").status_code == 401
    with fakes.running(service(), later=(service(2.0),)) as client:
        refused = client.post("/v1/bundle/reload")
        assert refused.status_code == 403
        assert "--api-key" in refused.json()["error"]["message"]


def test_a_draining_server_does_not_reload() -> None:
    async def drained() -> None:
        pool = fakes.pool(service(), service(2.0))
        pool.drain()
        with pytest.raises(NotReloaded, match="shutting down"):
            await pool.reload(pool.find(""))
        await pool.stop()

    asyncio.run(drained())


def test_overwritten_files_are_detected_and_replaced_ones_are_accepted(tmp_path: Path) -> None:
    for name in ("model.vmfb", "params.irpa", "manifest.json"):
        (tmp_path / name).write_bytes(b"whole")
    opened = FileWatch(tmp_path)
    assert opened.overwritten() == ()
    (tmp_path / "new").write_bytes(b"another")
    (tmp_path / "new").replace(tmp_path / "model.vmfb")
    (tmp_path / "manifest.json").unlink()
    assert opened.overwritten() == ()
    (tmp_path / "params.irpa").write_bytes(b"cut")
    assert opened.overwritten() == ("params.irpa",)


def test_an_unload_waits_for_a_load_that_has_begun() -> None:
    """Otherwise a model that was given other settings meanwhile would be served with the old."""
    begun, opened = threading.Event(), threading.Event()

    def open_bundle(_reserved: int) -> Service:
        begun.set()
        opened.wait()
        return service()

    async def unload_during_a_load() -> None:
        deployment = Deployment("model", open_bundle)
        load = asyncio.create_task(deployment.load())
        await asyncio.to_thread(begun.wait)
        unload = asyncio.create_task(deployment.unload())
        await asyncio.sleep(0)
        opened.set()
        await asyncio.gather(load, unload)
        assert deployment.current is None

    asyncio.run(unload_during_a_load())
