"""/v1/messages/batches by the real `anthropic` client, on a fake model."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from hearthd.server.api.anthropic import batch_runner
from hearthd.server.api.anthropic.batch_runner import StoredBatch
from hearthd.server.api.stored import claims
from hearthd.server.api.stored.state import State
from hearthd.server.api.stored.store import Store
from hearthd.server.app import Guards
from hearthd.server.batch_requests.app_target import AppTarget
from hearthd.server.batch_requests.batch_request import Reply
from tests.patience import PATIENCE, wait_until
from tests.server import fakes, templates
from tests.server.api.anthropic.client_package import client_of, package
from tests.server.openai_servers import LIBRARY, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hearthd.server.batch_requests.batch_request import BatchRequest

HELLO: list[Any] = [{"role": "user", "content": "the dog"}]


def slow() -> Any:
    """A service whose answers take seconds."""
    return fakes.fake_service(LIBRARY, template=templates.GEMMA, context=256, delay=0.02)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with client_of(scripted("the dog jumps")) as client:
        yield client


def request(custom_id: str, **params: Any) -> Any:
    body = {"model": "any", "max_tokens": 50, "messages": HELLO, **params}
    return {"custom_id": custom_id, "params": body}


def ended(client: Any, id_: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while (batch := client.messages.batches.retrieve(id_)).processing_status != "ended":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return batch


def stored(store: Store, owner: str = "", *, status: str = "in_progress", year: int = 2999) -> None:
    """Store a batch; a server has answered one of its two requests."""
    record = {
        "object": "message_batch",
        "id": "msgbatch_a",
        "processing_status": status,
        "created_at": "2026-01-01T00:00:00Z",
        "expires_at": f"{year}-01-01T00:00:00Z",
        "request_counts": {"processing": 2},
    }
    inputs = [{"id": f"msgbatch_a/{name}", **request(name)} for name in ("r0", "r1")]
    result = {"type": "errored", "error": {"type": "error"}}
    outputs = [{"id": "msgbatch_a/r0/result", "custom_id": "r0", "result": result}]
    State(store, owner).put("msgbatch_a", record, inputs=inputs, outputs=outputs)


def test_a_batch_is_answered(client: Any) -> None:
    requests = [request(f"r{number}") for number in range(6)]
    created = client.messages.batches.create(
        requests=[*requests, request("wrong", max_tokens=0), request("none", messages=[])]
    )
    assert (created.processing_status, created.results_url) == ("in_progress", None)
    assert created.request_counts.processing == 8
    batch = ended(client, created.id)
    counts = {"processing": 0, "succeeded": 6, "errored": 2, "canceled": 0, "expired": 0}
    assert batch.request_counts.to_dict() == counts
    *answers, wrong, none = client.messages.batches.results(created.id)
    assert [answer.custom_id for answer in answers] == [f"r{number}" for number in range(6)]
    assert {answer.result.message.content[0].text for answer in answers} == {"the dog jumps"}
    assert wrong.result.error.error.type == "invalid_request_error"
    assert "max_tokens" in wrong.result.error.error.message
    assert "messages" in none.result.error.error.message


def test_batches_are_listed_and_deleted(client: Any) -> None:
    batches = client.messages.batches
    ids = [batches.create(requests=[request("a")]).id for _ in range(3)]
    for id_ in ids:
        ended(client, id_)
    assert [batch.id for batch in batches.list(limit=2)][:3] == ids[::-1]
    newer = batches.list(before_id=ids[0], limit=1)
    assert ([batch.id for batch in newer.data], newer.has_more) == ([ids[1]], True)
    assert batches.delete(ids[1]).type == "message_batch_deleted"
    with pytest.raises(package().NotFoundError):
        batches.retrieve(ids[1])
    assert ids[1] not in [batch.id for batch in batches.list()]


def test_a_batch_is_canceled() -> None:
    with client_of(slow()) as client:
        batches = client.messages.batches
        created = batches.create(requests=[request(f"r{n}", max_tokens=150) for n in range(20)])
        with pytest.raises(package().BadRequestError, match="cancel"):
            batches.delete(created.id)
        with pytest.raises(package().BadRequestError, match="ended"):
            client.get(f"/v1/messages/batches/{created.id}/results", cast_to=object)
        canceled = batches.cancel(created.id)
        assert canceled.processing_status == "canceling"
        assert canceled.cancel_initiated_at is not None
        batch = ended(client, created.id)
        assert batch.request_counts.canceled > 10
        assert len(list(batches.results(created.id))) == 20
        assert batches.cancel(created.id) == batch


def test_invalid_batches_are_rejected(client: Any) -> None:
    for requests, reason in (
        ([request("a"), request("a")], "custom_id once"),
        ([request("a b")], "custom_id.* expected a text that matches"),
        ([request("a", stream=True)], "whole message"),
        ([], "requests"),
    ):
        with pytest.raises(package().BadRequestError, match=reason):
            client.messages.batches.create(requests=requests)


def test_a_batch_that_does_not_fit_is_rejected_and_drops_nothing() -> None:
    store = Store(limit=4000)
    stored(store)
    with client_of(scripted("the dog"), store=store) as client:
        with pytest.raises(package().BadRequestError, match="state-size"):
            client.messages.batches.create(requests=[request(f"r{n}") for n in range(100)])
        assert client.messages.batches.retrieve("msgbatch_a")


@pytest.mark.parametrize(
    ("status", "year", "result"),
    [
        ("in_progress", 2999, "succeeded"),
        ("canceling", 2999, "canceled"),
        ("in_progress", 2000, "expired"),
    ],
)
def test_a_restarted_server_continues_a_batch(status: str, year: int, result: str) -> None:
    store = Store()
    stored(store, status=status, year=year)
    with client_of(scripted("the dog jumps"), store=store) as client:
        ended(client, "msgbatch_a")
        results = client.messages.batches.results("msgbatch_a")
        assert [each.result.type for each in results] == ["errored", result]


def test_a_stopped_server_leaves_a_batch_to_the_next_one() -> None:
    store = Store()
    with client_of(slow(), store=store) as client:
        created = client.messages.batches.create(
            requests=[request(f"r{n}", max_tokens=30) for n in range(6)]
        )
    assert State(store, "").record(created.id, "message_batch")["ended_at"] is None
    with client_of(scripted("the dog jumps"), store=store) as client:
        assert ended(client, created.id).request_counts.succeeded == 6


def test_a_clock_that_is_set_expires_no_running_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @override
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=400)

    state = State(Store(), "")
    expires = batch_runner.timestamp(datetime.now(UTC) + batch_runner.EXPIRY)
    record = {"object": "message_batch", "id": "msgbatch_a", "processing_status": "in_progress"}
    inputs = [{"id": f"msgbatch_a/{n}", **request(f"r{n}")} for n in range(3)]
    state.put("msgbatch_a", {**record, "expires_at": expires}, inputs=inputs)
    remaining = StoredBatch(state, "msgbatch_a").remaining(set())
    next(remaining)
    monkeypatch.setattr(batch_runner, "datetime", Later)
    assert [each.custom_id for each in remaining] == ["r1", "r2"]


def test_a_result_after_the_cancellation_is_the_only_one() -> None:
    store = Store()
    stored(store)
    state = State(store, "")
    answering, canceling = StoredBatch(state, "msgbatch_a"), StoredBatch(state, "msgbatch_a")
    canceling.cancel()
    answering.append("r1", Reply(status=200, body=b"{}"))
    canceling.end()
    counts = canceling.record["request_counts"]
    assert (counts["succeeded"], counts["errored"], counts["canceled"]) == (1, 1, 0)
    assert [each["result"]["type"] for each in results(canceling)] == ["errored", "succeeded"]


def test_servers_with_one_file_store_a_result_once() -> None:
    """A server that starts continues the batches of the file, which the other one still answers."""
    store = Store()
    stored(store)
    first, second = (StoredBatch(State(store, ""), "msgbatch_a") for _ in range(2))
    late = second.remaining(set())
    for batch in (first, second):
        batch.append("r1", Reply(status=200, body=b"{}"))
    assert not list(late)
    first.end()
    counts = first.record["request_counts"]
    assert (counts["succeeded"], counts["errored"]) == (1, 1)
    assert len(results(second)) == 2


class _Target(AppTarget):
    """Notes the requests that it answers when they are let."""

    def __init__(self, let: asyncio.Event) -> None:
        super().__init__(None, parallel=2)  # type: ignore[arg-type]
        self.answered: list[str] = []
        self._let = let

    @override
    async def post(self, request: BatchRequest) -> Reply:
        await self._let.wait()
        self.answered.append(request.custom_id)
        return Reply(status=200, body=b"{}")


@pytest.mark.parametrize("is_stopped", [False, True])
def test_servers_with_one_file_answer_a_request_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    """The server that started last goes on with a batch when the other one stops."""
    monkeypatch.setattr(claims, "_WAIT", 0.01)
    stores = [Store(tmp_path), Store(tmp_path)]
    stored(stores[0])

    async def answered() -> list[list[str]]:
        let = asyncio.Event()
        targets, tasks = [_Target(let), _Target(let)], []
        for store, target in zip(stores, targets, strict=True):
            answer = StoredBatch(State(store, ""), "msgbatch_a").answer(target)
            tasks.append(asyncio.create_task(answer))
            await asyncio.sleep(0)  # it claims the batch
        if is_stopped:
            tasks[0].cancel()
        let.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [target.answered for target in targets]

    assert asyncio.run(answered()) == ([[], ["r1"]] if is_stopped else [["r1"], []])
    assert State(stores[0], "").record("msgbatch_a", "message_batch")["ended_at"]


def test_results_are_written_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing a large batch takes seconds, in which no stream would go on."""
    names = [f"r{number}" for number in range(2 * batch_runner._PAGE + 1)]
    state, write, threads = State(Store(), ""), batch_runner._lines, set()
    ids = {name: f"msgbatch_a/{name}" for name in names}
    inputs = [{"id": id_, "custom_id": name, "params": {}} for name, id_ in ids.items()]
    outputs = [
        {"id": f"{id_}/result", "custom_id": name, "result": {"type": name}}
        for name, id_ in reversed(ids.items())
        if name != "r3"
    ]
    state.put("msgbatch_a", {"object": "message_batch"}, inputs=inputs, outputs=outputs)

    def noted(bodies: Any) -> bytes:
        threads.add(threading.get_ident())
        return write(bodies)

    monkeypatch.setattr(batch_runner, "_lines", noted)
    found = results(StoredBatch(state, "msgbatch_a"))
    expected = [name for name in names if name != "r3"]
    assert found == [{"custom_id": name, "result": {"type": name}} for name in expected]
    assert threading.get_ident() not in threads


def results(batch: StoredBatch) -> list[Any]:
    """The results of a batch, in the order of the requests."""

    async def lines() -> bytes:
        return b"".join([page async for page in batch.result_lines()])

    return [json.loads(line) for line in asyncio.run(lines()).splitlines()]


def test_invalid_requests_let_other_requests_pass() -> None:
    """Each is answered without a pause, so a batch of thousands would stop the server."""
    turns: list[int] = []

    async def scenario() -> None:
        answered = 0

        async def refuse(_scope: Any, _receive: Any, send: Any) -> None:
            nonlocal answered
            answered += 1
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        async def other_requests() -> None:
            while True:
                turns.append(answered)
                await asyncio.sleep(0)

        store = Store()
        State(store, "").put(
            "msgbatch_a",
            {"object": "message_batch", "expires_at": "2999-01-01T00:00:00Z"}
            | {"id": "msgbatch_a", "processing_status": "in_progress"},
            inputs=[{"id": f"a/{n}", **request(f"r{n}")} for n in range(50)],
        )
        others = asyncio.create_task(other_requests())
        await StoredBatch(State(store, ""), "msgbatch_a").answer(AppTarget(refuse, parallel=2))
        others.cancel()

    asyncio.run(scenario())
    assert set(range(2, 50, 2)) <= set(turns)


def test_only_the_key_of_a_batch_finds_it() -> None:
    keys = ("a long enough key", "another long key")
    store = Store()
    guards = Guards(api_keys=keys)
    with client_of(scripted("the dog"), key=keys[0], guards=guards, store=store) as client:
        id_ = client.messages.batches.create(requests=[request("a")]).id
        assert ended(client, id_).request_counts.succeeded == 1
        other = client.with_options(api_key=keys[1])
        with pytest.raises(package().NotFoundError):
            other.messages.batches.retrieve(id_)
        assert not other.messages.batches.list().data
    # The key of a batch that continues is still required to be one of the server's.
    stored(store, owner="00" * 32)
    state = State(store, "00" * 32)
    with client_of(scripted("the dog"), guards=guards, key=keys[0], store=store):
        batch = functools.partial(state.record, "msgbatch_a", "message_batch")
        wait_until(lambda: batch()["processing_status"] == "ended")
    errors = [item["result"]["error"] for item in state.items("msgbatch_a") if "result" in item]
    assert errors[1]["error"]["type"] == "authentication_error"


def test_the_results_are_found_behind_a_prefix() -> None:
    with client_of(scripted("the dog jumps"), prefix="/llm") as client:
        id_ = client.messages.batches.create(requests=[request("a")]).id
        ended(client, id_)
        (answer,) = client.messages.batches.results(id_)
        assert answer.result.message.content[0].text == "the dog jumps"


def test_a_batch_is_no_response_and_no_conversation(client: Any) -> None:
    id_ = client.messages.batches.create(requests=[request("a")]).id
    for field in ("previous_response_id", "conversation"):
        with pytest.raises(package().BadRequestError, match=field):
            client.post("/v1/responses", body={"input": "a", field: id_}, cast_to=object)
    reference = [{"type": "item_reference", "id": f"{id_}/a"}]
    with pytest.raises(package().BadRequestError, match="stored item"):
        client.post("/v1/responses", body={"input": reference}, cast_to=object)
