"""The server on a cluster of Ray: two nodes, three replicas with a fake runtime, one front."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from tests.cluster.fake_bundles import FakeBundles
from tests.cluster.load import client_of, reference, stream
from tests.patience import PATIENCE, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.local_cluster import LocalCluster

pytest.importorskip("ray", reason="needs Ray: pip install 'hearthd[ray]'")
# Ray leaves sockets and files to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

KEY = "a-key-of-the-cluster"
HEADERS = {"Authorization": f"Bearer {KEY}"}
SLOTS, REPLICAS = 4, 3
BUNDLES = FakeBundles({"slots": SLOTS, "batch": SLOTS, "delay": 0.05, "chunk": 16})


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    from hearthd.server.cluster.application import Scale
    from tests.cluster.local_cluster import local_cluster

    with local_cluster() as running:
        scale = Scale(min_replicas=REPLICAS, max_replicas=REPLICAS)
        running.deploy(BUNDLES, scale, api_key=[KEY], queue_limit=2)
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=cluster.url, headers=HEADERS, timeout=PATIENCE) as client:
        yield client


def test_the_openai_client_gets_the_same_answer_with_and_without_a_stream(
    cluster: LocalCluster,
) -> None:
    with openai.OpenAI(base_url=f"{cluster.url}/v1", api_key=KEY, max_retries=0) as client:
        body: dict[str, Any] = {
            "model": "fake-model",
            "messages": [{"role": "user", "content": "the quick brown fox"}],
            "max_tokens": 8,
            "seed": 3,
        }
        whole = client.chat.completions.create(**body).choices[0].message.content
        chunks = client.chat.completions.create(**body, stream=True)
        assert whole
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("lora_dir", "adapters", "name the adapters in lora"),
        ("port", 80, "set it in the Serve config"),
    ],
)
def test_settings_that_a_cluster_cannot_honor_are_rejected(
    setting: str, value: Any, reason: str
) -> None:
    from hearthd.server.cluster.application import hearth_app
    from hearthd.server.settings import BadSettings

    with pytest.raises(BadSettings, match=reason):
        hearth_app({"bundle": "/nowhere", "threads": 1, setting: value})


def test_keys_are_required_and_the_page_is_open(cluster: LocalCluster) -> None:
    refused = httpx.post(f"{cluster.url}/generate", json={"prompt": "the"})
    assert refused.status_code == 401
    assert httpx.get(cluster.url).status_code == 200


def test_choices_of_one_request_run_at_the_same_time(client: httpx.Client) -> None:
    body = {"prompt": [5, 6], "max_tokens": 4, "n": 4, "seed": 1}
    choices = client.post("/v1/completions", json=body).json()["choices"]
    alone = [
        client.post("/v1/completions", json={**body, "n": 1, "seed": 1 + i}).json()["choices"][0]
        for i in range(4)
    ]
    assert [choice["text"] for choice in choices] == [choice["text"] for choice in alone]


def test_a_full_queue_is_a_429_with_retry_after(client: httpx.Client) -> None:
    room = SLOTS * REPLICAS + 2
    with ThreadPoolExecutor(room + 1) as pool:
        body = {"prompt": [5, 6], "max_tokens": 60}
        sent = [pool.submit(client.post, "/generate", json=body) for _ in range(room + 1)]
        answers = [future.result() for future in sent]
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] * room + [429]
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["type"] == "rate_limit_error"


def test_a_client_that_disconnects_frees_its_slot(client: httpx.Client) -> None:
    body = {"prompt": [5], "max_tokens": 250, "stream": True}
    with client.stream("POST", "/generate", json=body) as response:
        next(response.iter_bytes())
    wait_until(lambda: not any(slot["is_processing"] for slot in slots(client)))


def test_a_prompt_goes_to_the_replica_that_has_its_start(client: httpx.Client) -> None:
    start = [5 + i % 200 for i in range(64)]
    body: dict[str, Any] = {"prompt": start, "max_tokens": 2}
    client.post("/v1/completions", json=body)
    for turn in range(6):
        body["prompt"] = [*start, *range(5, 8 + turn)]
        usage = client.post("/v1/completions", json=body).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 48


def test_slots_and_metrics_are_those_of_all_replicas(client: httpx.Client) -> None:
    wait_until(lambda: len(slots(client)) == SLOTS * REPLICAS)
    line = f'hearth_slots{{model="fake-model"}} {SLOTS * REPLICAS}.0'
    assert line in client.get("/metrics").text
    refused = client.post("/v1/bundle/reload")
    assert refused.status_code == 500
    assert "serve deploy" in refused.json()["error"]["message"]


def test_a_deadline_ends_an_answer(client: httpx.Client) -> None:
    body = {"prompt": [5], "max_tokens": 200, "timeout_ms": 400}
    answer = client.post("/generate", json=body).json()
    assert answer["finish_reason"] == "timeout"
    assert 0 < len(answer["token_ids"]) < 50


def test_streams_of_a_killed_replica_continue_with_the_same_tokens(cluster: LocalCluster) -> None:
    from tests.cluster.local_cluster import kill_replica, replica_processes

    async def run() -> None:
        bodies = [{"prompt": [5 + i, 6], "max_tokens": 40} for i in range(6)]
        async with client_of(cluster.url) as client:
            client.headers.update(HEADERS)
            asking = [asyncio.create_task(stream(client, body)) for body in bodies]
            await asyncio.sleep(1)
            for process in replica_processes()[:2]:
                kill_replica(process)
            answers = await asyncio.gather(*asking)
        assert [answer.error for answer in answers] == [""] * len(answers)
        assert [answer.tokens for answer in answers] == await reference(BUNDLES, answers)

    asyncio.run(run())


@pytest.mark.usefixtures("cluster")
def test_a_batch_that_is_killed_is_continued(tmp_path: Path) -> None:
    from tests.cluster.batch_on_ray import answers_in, run_and_kill, write_requests

    requests, answers = tmp_path / "requests", tmp_path / "answers"
    count = 400
    write_requests(requests, count)
    assert run_and_kill(requests, answers, kill_after=count // 4) < count
    run_and_kill(requests, answers, kill_after=None)
    lines = answers_in(answers)
    assert {line["custom_id"] for line in lines} == {f"é{number}" for number in range(count)}
    assert len(lines) == count
    assert {line["response"]["status_code"] for line in lines} == {200}


def slots(client: httpx.Client) -> list[dict[str, Any]]:
    states: list[dict[str, Any]] = client.get("/slots").json()
    return states
