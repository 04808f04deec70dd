"""GET /props, /slots, /metrics and /v1/bundle, on a real server with a fake runtime."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hearthd.sampling.options import SamplingOptions
from hearthd.server.version import version
from tests.patience import PATIENCE, wait_until
from tests.server import fakes
from tests.server.generate_client import LIBRARY, POISON, answer, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

Figures = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        yield client


def figures(client: httpx.Client) -> Figures:
    """Every sample of /metrics by its name and the values of its labels.

    Without the label `model`, except in hearth_info, where it is one of several facts.
    """
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    return {
        (
            sample.name,
            tuple(
                value
                for label, value in sample.labels.items()
                if label != "model" or sample.name == "hearth_info"
            ),
        ): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def figure(figures: Figures, name: str, *labels: str) -> float:
    return figures.get((f"hearth_{name}", labels), 0.0)


def test_the_context_that_is_served_is_reported_everywhere() -> None:
    service = fakes.fake_service(LIBRARY, context=32)
    service.manifest = replace(service.manifest, context=64)  # memory allows half of it
    with fakes.running(service) as client:
        assert client.get("/props").json()["default_generation_settings"]["n_ctx"] == 32
        assert client.get("/slots").json()[0]["n_ctx"] == 32
        assert client.get("/v1/models").json()["data"][0]["meta"]["n_ctx"] == 32
        assert client.get("/health").json()["model"]["context"] == 32
        assert client.post("/detokenize", json={"tokens": [5] * 129}).status_code == 400


def test_props_have_defaults_and_properties(client: httpx.Client) -> None:
    data = client.get("/props").json()
    params = data["default_generation_settings"]["params"]
    assert data["default_generation_settings"]["n_ctx"] == 64
    defaults = vars(SamplingOptions())
    shared = {name for name in params if name in defaults} - {"samplers", "logit_bias"}
    assert len(shared) > 10
    assert {name: params[name] for name in shared} == {name: defaults[name] for name in shared}
    assert data["total_slots"] == len(client.get("/slots").json())
    assert data["model_alias"] == client.get("/v1/models").json()["data"][0]["id"]
    assert data["bos_token"] == "<bos>"
    assert (data["role"], data["models_autoload"]) == ("model", True)
    assert data["build_info"] == f"hearth {version()}"
    assert data["chat_template"] == ""
    # Slow kernels are said to be.
    assert data["kernels"] == {"names": ["linear_int8_g32"], "instructions": "portable"}
    assert client.get("/v1/bundle").json()["provenance"]["kernels"] == data["kernels"]


def test_slots_have_no_files(client: httpx.Client) -> None:
    refused = client.post("/slots/0?action=save", json={"filename": "a.bin"})
    assert refused.status_code == 501
    assert "--cache-dir" in refused.json()["error"]["message"]


def test_metrics_have_the_names_of_llama_server(client: httpx.Client) -> None:
    def read() -> dict[str, float]:
        response = client.get("/metrics")
        assert 0 <= time.time() - int(response.headers["process-start-time-unix"]) < 600
        text = response.text
        families = text_string_to_metric_families(text)
        samples = [sample for family in families for sample in family.samples]
        return {
            sample.name.removeprefix("llamacpp:"): sample.value
            for sample in samples
            if sample.name.startswith("llamacpp:")
        }

    before = read()
    prompt = list(range(5, 30))
    timings = [
        client.post("/completion", json={"prompt": prompt, "n_predict": 4}).json()["timings"]
        for _ in range(2)
    ]
    after = read()
    grown = {name: after[name] - before[name] for name in after}
    assert grown["prompt_tokens_total"] == sum(each["prompt_n"] for each in timings)
    assert grown["prompt_tokens_cached_total"] == sum(each["cache_n"] for each in timings) > 0
    assert grown["tokens_predicted_total"] == sum(each["predicted_n"] for each in timings) > 0
    for name, field in (("prompt", "prompt_ms"), ("tokens_predicted", "predicted_ms")):
        seconds = sum(each[field] for each in timings) / 1e3
        assert grown[f"{name}_seconds_total"] == pytest.approx(seconds)
    decoded = sum(each["predicted_n"] - 1 for each in timings)
    rate = decoded / grown["tokens_predicted_seconds_total"]
    assert after["predicted_tokens_seconds"] == pytest.approx(rate)
    assert read()["predicted_tokens_seconds"] == 0
    assert (after["requests_processing"], after["requests_deferred"]) == (0, 0)


def test_the_bundle_route_returns_the_manifest(client: httpx.Client) -> None:
    service = fakes.fake_service(LIBRARY)
    manifest = client.get("/v1/bundle").json()
    assert manifest.pop("self_test") == client.get("/health").json()["self_test"]
    assert manifest == json.loads(service.manifest.to_json())
    assert client.get("/props").json()["bundle"] == service.fingerprint


def test_slots_show_progress() -> None:
    service = fakes.fake_service(LIBRARY, delay=0.1, slots=2)
    with fakes.running(service) as client:
        before = client.get("/slots").json()
        assert [slot["id"] for slot in before] == [0, 1]
        assert not any(slot["is_processing"] for slot in before)
        body = {"prompt": [5, 6, 7], "max_tokens": 60, "stream": True}
        with client.stream("POST", "/generate", json=body) as response:
            lines = response.iter_lines()  # kept: the end of it closes the connection
            next(lines)
            # A token is delivered within a step; the slots are as after the latest whole step.
            wait_until(lambda: client.get("/slots").json()[0]["next_token"][0]["n_decoded"] > 0)
            busy, free = client.get("/slots").json()
            assert busy["is_processing"]
            assert busy["n_ctx"] == 64
            assert busy["n_prompt_tokens"] == busy["n_prompt_tokens_processed"] == 3
            (next_token,) = busy["next_token"]
            assert 1 <= next_token["n_decoded"] < 60
            assert next_token["n_decoded"] + next_token["n_remain"] == 60
            assert not free["is_processing"]
            assert client.get("/slots?fail_on_no_slot=true").status_code == 200
        wait_until_free(client)


def test_fail_on_no_slot_answers_503() -> None:
    with fakes.running(fakes.fake_service(LIBRARY, delay=0.02, slots=1)) as client:
        body = {"prompt": [5], "max_tokens": 60, "stream": True}
        with client.stream("POST", "/generate", json=body) as response:
            lines = response.iter_lines()  # kept: the end of it closes the connection
            next(lines)
            path = "/slots?fail_on_no_slot=1"
            wait_until(lambda: client.get(path).status_code == 503)
            refused = client.get(path)
            assert refused.json()["error"]["message"] == "every slot is busy; retry later"


def wait_until_free(client: httpx.Client, seconds: float = PATIENCE) -> Figures:
    """The figures once no slot is busy and nothing waits."""
    deadline = time.monotonic() + seconds
    while True:
        metrics = figures(client)
        if not figure(metrics, "slots_busy") and not figure(metrics, "queued"):
            return metrics
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_metrics_have_no_time_of_creation(client: httpx.Client) -> None:
    text = client.get("/metrics").text
    assert "hearth_queue_seconds_count" in text
    assert "_created" not in text


def test_counters_are_exact() -> None:
    with fakes.running(fakes.fake_service(LIBRARY, poison=POISON)) as client:
        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(answer, client, max_tokens=n, seed=n) for n in range(1, 8)]
            answers = [job.result() for job in jobs]
        events = stream(client, max_tokens=5, seed=1)
        client.post("/generate", json={"prompt": [POISON]})
        client.post("/generate", json={})
        client.get("/nope/1")
        client.get("/nope/2")
        metrics = wait_until_free(client)
    usages: list[dict[str, Any]] = [data["usage"] for data in [*answers, events[-1][1]]]
    written = sum(usage["completion_tokens"] for usage in usages)
    read = sum(usage["prompt_tokens"] for usage in usages)
    assert figure(metrics, "completions_total", "length") == 8
    assert figure(metrics, "completions_total", "failed") == 1
    assert figure(metrics, "generated_tokens_total") == written == 33
    taken = figure(metrics, "prompt_tokens_total", "cache")
    read += 1  # the failed one's
    assert figure(metrics, "prompt_tokens_total", "model") + taken == read
    assert figure(metrics, "http_requests_total", "/generate", "200") == 8
    assert figure(metrics, "http_requests_total", "/generate", "500") == 1
    assert figure(metrics, "http_requests_total", "/generate", "400") == 1
    assert figure(metrics, "http_requests_total", "none", "404") == 2
    assert figure(metrics, "time_to_first_token_seconds_count") == 8
    assert figure(metrics, "inter_token_seconds_count") == written - 8
    assert figure(metrics, "queue_seconds_count") == 9
    assert figure(metrics, "self_test_passed") == 1
    assert metrics["process_resident_memory_bytes", ()] > 1e6
    (info,) = [labels for name, labels in metrics if name == "hearth_info"]
    assert set(info) >= {version(), "fake", "f32"}


def test_gauges_return_to_zero_after_disconnects() -> None:
    service = fakes.fake_service(LIBRARY, context=5000, delay=0.02, slots=2)
    body = b'{"prompt": [5], "max_tokens": 4000}'  # its answer takes longer than PATIENCE
    with fakes.running(service) as client, contextlib.ExitStack() as impatient:

        def reads(name: str, *labels: str) -> float:
            return figure(figures(client), name, *labels)

        for _ in range(6):
            address = (client.base_url.host, client.base_url.port)
            connection = impatient.enter_context(socket.create_connection(address, PATIENCE))
            connection.sendall(
                b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
        wait_until(lambda: (reads("slots_busy"), reads("queued")) == (2, 4))
        impatient.close()
        wait_until(lambda: reads("http_requests_total", "/generate", "499") == 6)
        metrics = wait_until_free(client)
        assert figure(metrics, "slots") == 2
        assert figure(metrics, "completions_total", "cancelled") == 6
        assert figure(metrics, "queue_seconds_count") >= 2


def test_two_servers_have_separate_counters(client: httpx.Client) -> None:
    with fakes.running(fakes.fake_service(LIBRARY)) as other:
        answer(client, max_tokens=1)
        assert figure(figures(other), "generated_tokens_total") == 0
