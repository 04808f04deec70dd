"""Several models in one server: loaded on demand, unloaded for others, one at a time."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hearthd.bundle import REQUEST_MEMORY, Corrupt
from hearthd.server.errors import NotReloaded
from hearthd.server.services import model_pool
from hearthd.server.services.deployment import Deployment
from tests.fake_runtime import open_gate
from tests.patience import PATIENCE, wait_until
from tests.server import fakes, functions
from tests.server.fake_models import OWN, FakeModel, complete, pool, statuses, words

if TYPE_CHECKING:
    from collections.abc import Callable


def named(*names: str, **fields: Any) -> list[FakeModel]:
    """Models of different bundles."""
    return [FakeModel(name=n, spread=2.0 + at, **fields) for at, n in enumerate(names)]


def load(client: httpx.Client, name: str) -> httpx.Response:
    return client.post("/models/load", json={"model": name})


def unload(client: httpx.Client, name: str) -> httpx.Response:
    return client.post("/models/unload", json={"model": name})


def test_models_load_on_demand_and_the_least_recently_used_one_is_unloaded() -> None:
    models = named("a", "b", "c")
    with fakes.running(pool(*models, room=2)) as client:
        assert statuses(client) == {"a": "loaded", "b": "unloaded", "c": "unloaded"}
        first = complete(client, "a")
        other = complete(client, "b")
        assert first["system_fingerprint"] != other["system_fingerprint"]
        assert words(first) != words(other)
        complete(client, "a")
        assert complete(client, "c")["system_fingerprint"] == models[2].opened[0].fingerprint
        assert statuses(client) == {"a": "loaded", "b": "unloaded", "c": "loaded"}
        # Each is opened with the memory that the others take.
        assert [model.reserved for model in models] == [0, OWN, OWN]
        # A model that is loaded again gives the same bits.
        assert words(complete(client, "b")) == words(other)
        assert statuses(client) == {"a": "unloaded", "b": "loaded", "c": "loaded"}
        assert words(complete(client, "a")) == words(first)
        assert [len(model.opened) for model in models] == [2, 2, 1]


def test_pinned_models_are_opened_with_the_memory_that_the_others_take() -> None:
    models = named("a", "b", "c")
    pool(*models, pinned=["b", "c"])
    assert [model.reserved for model in models] == [0, OWN, 2 * OWN]


@pytest.mark.nightly
def test_stored_responses_take_memory_of_the_models() -> None:
    models = named("a", "b", "c")
    stored = OWN
    with fakes.running(pool(*models, room=2, reserved_memory=stored)) as client:
        complete(client, "b")
        assert [model.reserved for model in models[:2]] == [stored, stored]
        assert statuses(client) == {"a": "unloaded", "b": "loaded", "c": "unloaded"}


def test_the_requests_of_a_large_function_take_memory_of_the_other_models() -> None:
    """Also while it is not loaded: the limit of all bodies together allows for its calls."""
    arrays = functions.copying(10**7)
    (text,) = named("text")
    unloaded = Deployment("arrays", lambda _reserved: arrays, manifest=arrays.manifest)
    for body, taken in ((10**6, 0), (10**7, 18 * 10**7 - REQUEST_MEMORY)):
        model_pool.ModelPool([text.deployment(), unloaded], max_body_bytes=body).open()
        assert unloaded.current is None
        assert text.reserved == taken


def test_a_model_that_fails_to_load_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad = named("good", "bad")
    bad.error = Corrupt("model.vmfb: wrong sha256")
    with fakes.running(pool(good, bad)) as client:
        with ThreadPoolExecutor(1) as executor:
            running = executor.submit(complete, client, "good", 50)
            refused = client.post("/v1/completions", json={"model": "bad", "prompt": "the"})
            assert refused.status_code == 503
            error = refused.json()["error"]
            assert error["message"] == ("bad: the model cannot be loaded: model.vmfb: wrong sha256")
            running.result()
        assert statuses(client) == {"good": "loaded", "bad": "failed"}
        status = client.get("/v1/models/bad").json()["status"]
        assert (status["value"], status["error"]) == ("unloaded", error["message"])
        assert client.get("/health/ready").status_code == 200
        assert client.get("/health/ready?model=bad").status_code == 503
        assert client.get("/health?model=bad").json()["status"] == "not_loaded"
        # It is not tried again for each request, but on demand and after some time.
        bad.error = None
        assert client.post("/tokenize", json={"model": "bad", "content": ""}).status_code == 503
        assert load(client, "bad").json() == {"success": True}
        complete(client, "bad")
        bad.error = MemoryError()
        assert unload(client, "bad").status_code == 200
        assert load(client, "bad").json()["error"]["message"].endswith("MemoryError")
        bad.error = None
        monkeypatch.setattr(model_pool, "_RETRY_SECONDS", 0)
        complete(client, "bad")
        assert statuses(client) == {"good": "loaded", "bad": "loaded"}


def test_a_model_whose_self_test_fails_is_not_loaded() -> None:
    good, bad = named("good", "bad")
    bad.golden_spread = 1.0
    with fakes.running(pool(good, bad)) as client:
        refused = client.post("/v1/completions", json={"model": "bad", "prompt": "the"})
        assert refused.status_code == 503
        assert "the self-test failed" in refused.json()["error"]["message"]
        assert statuses(client) == {"good": "loaded", "bad": "failed"}
        assert bad.opened[0].unavailable() is not None  # its thread has ended
        complete(client, "good")


def test_a_server_starts_with_a_model_that_cannot_be_opened() -> None:
    bad, good = named("bad", "good")
    bad.error = Corrupt("params.irpa: wrong size")
    with fakes.running(pool(bad, good)) as client:
        assert statuses(client) == {"bad": "failed", "good": "loaded"}
        complete(client, "good")
        assert client.get("/health/ready").status_code == 200
    with pytest.raises(Corrupt, match="wrong size"):
        pool(bad)


def test_requests_wait_for_one_load_and_streams_have_their_headers() -> None:
    first, slow = named("first", "slow")
    slow.gate.clear()
    with fakes.running(pool(first, slow)) as client, ThreadPoolExecutor(4) as executor:
        jobs = [executor.submit(complete, client, "slow") for _ in range(3)]
        wait_until(lambda: statuses(client)["slow"] == "loading")
        threading.Timer(0.3, slow.gate.set).start()
        body = {"model": "slow", "prompt": "the dog", "max_tokens": 3, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            assert response.headers["x-request-id"]
            assert response.read().endswith(b"data: [DONE]\n\n")
        assert len({words(job.result())[0] for job in jobs}) == 1
        assert len(slow.opened) == 1


def test_a_queue_limit_applies_to_the_requests_that_wait_for_a_load() -> None:
    first, slow = named("first", "slow")
    slow.gate.clear()
    models = pool(first, slow, queue_limit=2)
    with fakes.running(models) as client, ThreadPoolExecutor(2) as executor:
        jobs = [executor.submit(complete, client, "slow") for _ in range(2)]
        wait_until(lambda: waiting(client, "slow") == 2)
        refused = client.post("/v1/completions", json={"model": "slow", "prompt": "the"})
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        complete(client, "first")
        slow.gate.set()
        assert [len(words(job.result())[1]) for job in jobs] == [5, 5]


def waiting(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    prefix = f'hearth_model_waiting{{model="{name}"}} '
    return float(next(line for line in lines if line.startswith(prefix)).removeprefix(prefix))


def test_an_unload_waits_for_running_requests_and_later_ones_load_again() -> None:
    gate = open_gate()
    (model,) = named("a", fields={"gate": gate})
    models = pool(model)
    with fakes.running(models) as client, ThreadPoolExecutor(3) as executor:
        gate.clear()
        long = executor.submit(complete, client, "a", 50)
        wait_until(lambda: not model.opened[0].idle)
        unloading = executor.submit(unload, client, "a")
        wait_until(lambda: models.find("a").claimed)
        later = executor.submit(complete, client, "a")
        wait_until(lambda: waiting(client, "a") == 1)
        gate.set()
        assert len(words(long.result())[1]) == 50
        assert unloading.result().json() == {"success": True}
        assert words(later.result())[0] == words(long.result())[0][: len(words(later.result())[0])]
        assert len(model.opened) == 2
        assert unload(client, "a").status_code == 200
        assert statuses(client) == {"a": "unloaded"}
        assert client.get("/health/ready").status_code == 200
        assert unload(client, "a").status_code == 200


@pytest.mark.nightly
def test_two_flooded_models_take_turns_in_memory_for_one() -> None:
    models = named("a", "b")
    with fakes.running(pool(*models, room=1)) as client, ThreadPoolExecutor(8) as executor:
        expected = {model.name: words(complete(client, model.name)) for model in models}

        def ask(name: str) -> None:
            for _ in range(3):
                assert words(complete(client, name)) == expected[name]

        for job in [executor.submit(ask, name) for name in ("a", "b") * 3]:
            job.result()
        assert min(len(model.opened) for model in models) >= 2


def test_a_busy_model_is_not_unloaded_for_a_client_that_leaves() -> None:
    gate = open_gate()
    busy, other = named("busy", "other", fields={"gate": gate})
    with fakes.running(pool(busy, other, room=1)) as client, ThreadPoolExecutor(1) as executor:
        gate.clear()
        long = executor.submit(complete, client, "busy", 50)
        wait_until(lambda: not busy.opened[0].idle)
        body = {"model": "other", "prompt": "the"}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(client.base_url.join("/v1/completions"), json=body, timeout=0.2)
        wait_until(lambda: statuses(client)["other"] == "unloaded")
        gate.set()
        complete(client, "busy")
        assert len(words(long.result())[1]) == 50
        assert statuses(client) == {"busy": "loaded", "other": "unloaded"}
        assert (len(busy.opened), len(other.opened)) == (1, 0)


@pytest.mark.nightly
def test_models_are_loaded_in_the_order_of_their_requests() -> None:
    busy, first, second = named("busy", "first", "second", fields={"delay": 0.02})
    with fakes.running(pool(busy, first, second, room=1)) as client:
        ended: list[str] = []

        def ask(name: str, tokens: int) -> None:
            complete(client, name, tokens)
            ended.append(name)

        with ThreadPoolExecutor(3) as executor:
            jobs = [executor.submit(ask, "busy", 40)]
            wait_until(lambda: not busy.opened[0].idle)
            jobs.append(executor.submit(ask, "first", 2))
            wait_until(lambda: statuses(client)["first"] == "loading")
            jobs.append(executor.submit(ask, "second", 2))
            for job in jobs:
                job.result()
        assert ended == ["busy", "first", "second"]
        assert [len(model.opened) for model in (busy, first, second)] == [1, 1, 1]


@pytest.mark.nightly
def test_a_pinned_model_stays_and_an_idle_one_is_unloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pinned, idle = named("pinned", "idle")
    models = pool(idle, pinned, room=2, pinned=["pinned"], idle_timeout=60)
    with fakes.running(models) as client:
        assert statuses(client) == {"idle": "loaded", "pinned": "loaded"}
        answer, props = complete(client, "idle"), client.get("/props").json()
        assert props["is_sleeping"] is False
        monkeypatch.setattr(models.find("idle"), "idle_timeout", 0.3)
        wait_until(lambda: statuses(client)["idle"] == "unloaded")
        monkeypatch.undo()  # a slow client finds the model loaded below
        # Reading the state loads nothing, and the counters stay.
        assert client.get("/props").json() == {**props, "is_sleeping": True}
        assert client.get("/slots?model=idle").json() == []
        assert client.get("/health").json()["status"] == "ok"
        text = client.get("/metrics").text
        assert 'hearth_completions_total{model="idle",outcome="length"} 1.0' in text
        assert 'hearth_model_loaded{model="idle"} 0.0' in text
        assert statuses(client) == {"idle": "unloaded", "pinned": "loaded"}
        refused = unload(client, "pinned").json()["error"]
        assert refused["message"] == 'model: got "pinned", expected a model that is not pinned'
        assert words(complete(client, "idle")) == words(answer)
        assert len(idle.opened) == 2


def test_a_draining_server_ends_the_requests_that_wait_for_a_load() -> None:
    busy, other = named("busy", "other", fields={"delay": 0.02})
    models = pool(busy, other, room=1)
    with fakes.running(models) as client, ThreadPoolExecutor(2) as executor:
        long = executor.submit(complete, client, "busy", 30)
        wait_until(lambda: not busy.opened[0].idle)
        body = {"model": "other", "prompt": "the"}
        waits = executor.submit(client.post, "/v1/completions", json=body)
        wait_until(lambda: statuses(client)["other"] == "loading")
        models.drain()  # what a signal does, here from another thread
        assert waits.result().status_code == 503
        assert "shutting down" in waits.result().json()["error"]["message"]
        assert len(words(long.result())[1]) == 30


def test_a_server_that_stops_during_a_load_ends_the_loaded_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, slow = named("first", "slow")
    slow.gate.clear()
    models = pool(first, slow)
    drain = models.drain

    def drain_then_load() -> None:
        drain()
        slow.gate.set()

    monkeypatch.setattr(models, "drain", drain_then_load)
    with ThreadPoolExecutor(1) as executor:
        with fakes.running(models) as client:
            body = {"model": "slow", "prompt": "the"}
            refused = executor.submit(
                httpx.post, client.base_url.join("/v1/completions"), json=body, timeout=PATIENCE
            )
            wait_until(lambda: statuses(client)["slow"] == "loading")
        assert refused.result().status_code == 503
    for model in (first, slow):
        assert all(service.unavailable() is not None for service in model.opened)


def test_nothing_keeps_an_unloaded_model() -> None:
    (model,) = named("a")
    with fakes.running(pool(model)) as client:
        body = {"model": "a", "messages": [], "prompt": "the dog", "max_tokens": 3}
        complete(client, "a")
        with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
            response.read()
        for path in ("/metrics", "/props", "/health", "/slots", "/v1/bundle", "/v1/models"):
            assert client.get(path).status_code == 200
        assert client.post("/v1/chat/completions", json=body).status_code == 400
        service = weakref.ref(model.opened.pop())
        assert unload(client, "a").status_code == 200
        wait_until(lambda: gc.collect() >= 0 and service() is None)


def test_reload_offers_new_models_and_drops_those_that_are_gone() -> None:
    kept, gone, new = models = named("kept", "gone", "new", fields={"delay": 0.01})
    names = {"kept", "gone"}

    def find() -> dict[str, Callable[[], Deployment]]:
        if not names:
            raise NotReloaded("no folder")
        return {bundle.name: bundle.deployment for bundle in models if bundle.name in names}

    with (
        fakes.running(pool(kept, gone, find=find)) as client,
        ThreadPoolExecutor(1) as executor,
    ):
        complete(client, "gone")
        service = weakref.ref(gone.opened[0])
        names ^= {"gone", "new"}
        assert statuses(client) == {"kept": "loaded", "gone": "loaded"}
        listed = client.get("/models?reload=1").json()["data"]
        assert [model["id"] for model in listed] == ["kept", "new"]
        body = {"model": "gone", "prompt": "the"}
        assert client.post("/v1/completions", json=body).status_code == 404
        gone.opened.clear()
        wait_until(lambda: gc.collect() >= 0 and service() is None)
        complete(client, "new")
        # A model with requests answers them first.
        names ^= {"gone", "new"}
        long = executor.submit(complete, client, "new", 50)
        wait_until(lambda: not new.opened[0].idle)
        assert client.get("/models?reload=true").status_code == 200
        assert statuses(client) == {"kept": "loaded", "gone": "unloaded", "new": "loaded"}
        assert len(words(long.result())[1]) == 50
        wait_until(lambda: statuses(client) == {"kept": "loaded", "gone": "unloaded"})
        # A failed model is tried again.
        gone.error = Corrupt("params.irpa: wrong size")
        assert client.post("/tokenize", json={"model": "gone", "content": ""}).status_code == 503
        gone.error = None
        assert client.get("/models?reload=0").status_code == 200
        assert client.post("/tokenize", json={"model": "gone", "content": ""}).status_code == 503
        assert client.get("/models?reload=1").status_code == 200
        assert client.post("/tokenize", json={"model": "gone", "content": ""}).status_code == 200
        names.clear()
        refused = client.get("/models?reload=1")
        assert (refused.status_code, refused.json()["error"]["message"]) == (500, "no folder")
        names.add("another")
        assert "no bundle is left" in client.get("/models?reload=1").json()["error"]["message"]
        assert statuses(client) == {"kept": "loaded", "gone": "loaded"}
