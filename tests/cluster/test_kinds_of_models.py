"""Encoders, array functions and adapters on a cluster of Ray with two replicas.

Each answer is compared with the answer of the same services in one process.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.cluster.every_kind import CHUNK, NAMES, EveryKind
from tests.patience import PATIENCE, wait_until
from tests.server import adapter_folders, fakes
from tests.server.fakes import deployed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.local_cluster import LocalCluster

pytest.importorskip("ray", reason="needs Ray: pip install 'hearthd[ray]'")
# Ray leaves sockets and files to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PROMPT = list(range(5, 5 + 3 * CHUNK + 1))
EMBEDDED = {"model": "embedder", "input": ["the dog runs fast", "the fox", "sleeps"]}
RERANKED = {"model": "reranker", "query": "the dog", "documents": ["fox", "dog runs", "the dog"]}
CALLED = {"function": "root", "inputs": {"x": [4.0, 9.0, 16.0, 25.0]}}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> EveryKind:
    root = tmp_path_factory.mktemp("adapters")
    return EveryKind(
        {
            name: adapter_folders.write(root / name, adapter_folders.tensors(seed))
            for seed, name in enumerate(("sql", "json"))
        }
    )


@pytest.fixture(scope="module")
def cluster(models: EveryKind) -> Iterator[LocalCluster]:
    from hearthd.server.cluster.application import Scale
    from tests.cluster.local_cluster import local_cluster

    with local_cluster() as running:
        scale = Scale(min_replicas=2, max_replicas=2, max_bundles=4)
        running.deploy(models, scale, models=[models.describe(name) for name in NAMES])
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=cluster.url, timeout=PATIENCE) as client:
        yield client


@pytest.fixture(scope="module")
def one_machine(models: EveryKind) -> Iterator[httpx.Client]:
    from hearthd.server.services.model_pool import ModelPool

    services = [models.service(name) for name in NAMES]
    pool = ModelPool([deployed(service) for service in services], pinned=NAMES)
    with fakes.running(pool) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", EMBEDDED),
        ("/embedding", {"model": "embedder", "content": "the dog"}),
        ("/v1/rerank", RERANKED),
        ("/run?model=functions", CALLED),
        ("/v1/embeddings", {**EMBEDDED, "input": "dog " * 40}),
        ("/v1/rerank", {**RERANKED, "model": "embedder"}),
    ],
)
def test_an_answer_is_that_of_one_machine(
    client: httpx.Client, one_machine: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    here, there = (one.post(path, json=body) for one in (client, one_machine))
    assert here.status_code == there.status_code
    answers = [answer.json() for answer in (here, there)]
    for answer in answers:
        if "error" in answer:
            del answer["error"]["request_id"]
    assert answers[0] == answers[1]


def test_a_function_that_fails_is_a_500_with_its_reason(client: httpx.Client) -> None:
    body = {"function": "root", "inputs": {"x": [-7.0, 0.0, 0.0, 0.0]}}
    response = client.post("/run?model=functions", json=body)
    assert response.status_code == 500
    assert "RuntimeError: poison" in response.json()["error"]["message"]


def test_metrics_have_the_calls_of_all_replicas(client: httpx.Client) -> None:
    wait_until(lambda: 'hearth_slots{model="embedder"} 2.0' in client.get("/metrics").text)
    client.post("/v1/embeddings", json={**EMBEDDED, "input": ["the dog runs fast"]})
    line = 'hearth_runs_total{function="encode_2x8",model="embedder",outcome="done"}'
    assert line in client.get("/metrics").text


@pytest.mark.parametrize(
    "choice",
    [
        {"model": "language:sql"},
        {"model": "language:json"},
        {"model": "language", "lora": [{"id": 1, "scale": 0.5}]},
        {"model": "language"},
    ],
)
def test_an_adapter_answers_with_the_tokens_of_one_machine(
    client: httpx.Client, one_machine: httpx.Client, choice: dict[str, Any]
) -> None:
    body = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0, **choice}
    here, there = (one.post("/v1/completions", json=body).json() for one in (client, one_machine))
    for field in ("choices", "model", "system_fingerprint"):
        assert here[field] == there[field]


def test_the_adapters_are_listed_and_do_not_change(client: httpx.Client) -> None:
    listed = client.get("/lora-adapters").json()
    assert [(one["id"], one["name"], one["scale"]) for one in listed] == [
        (0, "sql", 0.0),
        (1, "json", 0.0),
    ]
    assert "language:sql" in [one["id"] for one in client.get("/v1/models").json()["data"]]
    for path, body in {
        "/lora-adapters/load": {"path": "sql"},
        "/lora-adapters/unload": {"id": 0},
        "/lora-adapters": [{"id": 0, "scale": 1.0}],
    }.items():
        refused = client.post(path, json=body)
        assert refused.status_code == 501
        assert client.get("/lora-adapters").json() == listed


def test_a_prompt_goes_to_the_replica_that_read_it_with_its_adapter(client: httpx.Client) -> None:
    """Two adapters have no blocks in common, and each finds its own ones wherever they are."""
    prompt = [9, *PROMPT[1:]]
    for model in ("language:sql", "language:json", "language"):
        assert cached(client, model, prompt) == 0
    for model in ("language:sql", "language:json", "language") * 3:
        assert cached(client, model, prompt) == 3 * CHUNK


def test_calls_of_a_killed_replica_are_repeated(client: httpx.Client) -> None:
    from tests.cluster.local_cluster import kill_replica, replica_processes

    expected = client.post("/v1/embeddings", json=EMBEDDED).json()["data"]
    ends = time.monotonic() + PATIENCE

    def ask(_number: int) -> list[httpx.Response]:
        answers = []
        while time.monotonic() < ends:
            answers.append(client.post("/v1/embeddings", json=EMBEDDED))
        return answers

    with ThreadPoolExecutor(4) as pool:
        asking = pool.map(ask, range(4))
        time.sleep(1)
        kill_replica(replica_processes()[-1])
        answers = [answer for answers in asking for answer in answers]
    assert {answer.status_code for answer in answers} == {200}
    assert all(answer.json()["data"] == expected for answer in answers)


def cached(client: httpx.Client, model: str, prompt: list[int]) -> int:
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
    usage = client.post("/v1/completions", json=body).json()["usage"]
    tokens: int = usage["prompt_tokens_details"]["cached_tokens"]
    return tokens
