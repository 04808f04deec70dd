"""A disk with no space for what requests store: each surface says so, and answers stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.api.anthropic import batch_runner
from hearthd.server.api.stored.store import Store
from tests.patience import wait_until
from tests.server import fakes
from tests.server.openai_servers import scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

TURN = {"role": "user", "content": "the dog"}
BATCH = {"requests": [{"custom_id": "r", "params": {"max_tokens": 5, "messages": [TURN]}}]}


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def client(store: Store) -> Iterator[httpx.Client]:
    with fakes.running(scripted("the fox runs"), store=store) as client:
        yield client


def fill(store: Store, *, full: bool = True) -> None:
    store._database.execute(f"PRAGMA query_only = {'ON' if full else 'OFF'}")


def post(client: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return client.post(path, json=body)


def test_what_cannot_be_stored_is_an_error(store: Store, client: httpx.Client) -> None:
    conversation = post(client, "/v1/conversations", items=[TURN]).json()["id"]
    (item,) = client.get(f"/v1/conversations/{conversation}/items").json()["data"]
    response = post(client, "/v1/responses", input="the dog").json()["id"]
    fill(store)
    rejected = [
        post(client, "/v1/conversations", items=[TURN]),
        post(client, f"/v1/conversations/{conversation}", metadata={"a": "b"}),
        post(client, f"/v1/conversations/{conversation}/items", items=[TURN]),
        client.delete(f"/v1/conversations/{conversation}/items/{item['id']}"),
        client.delete(f"/v1/conversations/{conversation}"),
        client.delete(f"/v1/responses/{response}"),
    ]
    for answer in rejected:
        assert answer.status_code == 507
        error = answer.json()["error"]
        assert (error["code"], error["type"]) == (507, "storage_full_error")
        assert error["message"].startswith("not stored: the disk of --state-dir")
    batch = post(client, "/v1/messages/batches", **BATCH)
    assert batch.status_code == 507
    assert batch.json()["type"] == "error"
    assert batch.json()["error"]["type"] == "api_error"
    fill(store, full=False)
    assert client.get(f"/v1/responses/{response}").status_code == 200
    assert client.delete(f"/v1/responses/{response}").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cannot_be_stored_says_so(
    store: Store, client: httpx.Client, stream: bool
) -> None:
    conversation = post(client, "/v1/conversations", items=[TURN]).json()["id"]
    fill(store)
    answer = post(
        client, "/v1/responses", input="the dog", conversation=conversation, stream=stream
    )
    assert answer.status_code == 200
    assert "the fox runs" in answer.text
    if stream:
        assert '"store":false' in answer.text.rpartition("response.completed")[2]
    else:
        assert answer.json()["store"] is False
        assert answer.headers["Warning"].startswith('299 hearth "response: not stored: the disk')
    fill(store, full=False)
    assert len(client.get(f"/v1/conversations/{conversation}/items").json()["data"]) == 1


def test_what_exceeds_the_state_is_a_bad_request() -> None:
    with fakes.running(scripted("the fox runs"), store=Store(limit=2000)) as client:
        long = post(client, "/v1/conversations", items=[{**TURN, "content": "x" * 3000}])
        assert long.status_code == 400
        assert "expected at most 2000 (--state-size)" in long.json()["error"]["message"]
        metadata = {str(number): "x" * 500 for number in range(4)}
        answer = post(client, "/v1/responses", input="the dog", metadata=metadata)
        assert answer.json()["store"] is False
        assert "--state-size" in answer.headers["Warning"]


def test_a_batch_waits_for_disk_space(
    store: Store, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_runner, "_WAIT_FOR_DISK", 0.05)
    waits: list[str] = []
    monkeypatch.setattr(batch_runner.log, "warning", lambda text, *_: waits.append(text))
    start = batch_runner.BatchRunner.start

    def start_on_a_full_disk(runner: Any, *arguments: Any) -> None:
        fill(store)
        start(runner, *arguments)

    monkeypatch.setattr(batch_runner.BatchRunner, "start", start_on_a_full_disk)
    path = f"/v1/messages/batches/{post(client, '/v1/messages/batches', **BATCH).json()['id']}"
    wait_until(lambda: len(waits) > 2)
    assert client.get(path).json()["processing_status"] == "in_progress"
    fill(store, full=False)
    wait_until(lambda: client.get(path).json()["processing_status"] == "ended")
    assert client.get(path).json()["request_counts"]["succeeded"] == 1
