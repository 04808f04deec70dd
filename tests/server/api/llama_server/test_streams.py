"""Streams that go on without their client: the routes and status codes of llama-server."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hearthd.server.api.resumable.streams import OffsetLost, Stream, Streams
from hearthd.server.app import Guards
from tests.patience import PATIENCE, wait_until
from tests.server import fakes
from tests.server.fake_models import FakeModel, pool, statuses
from tests.server.openai_servers import LIBRARY, chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = ("the key of the first", "the key of the second")
BODY: Any = {"prompt": "the dog", "n_predict": 8, "temperature": 0, "stream": True}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(), guards=Guards(api_keys=KEYS)) as client:
        client.headers["X-Api-Key"] = KEYS[0]
        yield client


@pytest.fixture(scope="module")
def slow() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(LIBRARY, delay=0.02, context=256)) as client:
        yield client


def lookup(client: httpx.Client, *ids: str, key: str = KEYS[0]) -> list[dict[str, Any]]:
    headers = {"X-Api-Key": key}
    body = {"conversation_ids": list(ids)}
    found: list[dict[str, Any]] = client.post(
        "/v1/streams/lookup", json=body, headers=headers
    ).json()
    return found


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", BODY),
        ("/v1/completions", {"prompt": "the dog", "max_tokens": 8, "stream": True}),
    ],
)
def test_an_ended_stream_is_read_again(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    id_ = f"talk::org/model:{path}"  # llama-server's ids may have a model with slashes
    sent = client.post(path, json=body, headers={"X-Conversation-Id": id_})
    assert sent.headers["content-type"].startswith("text/event-stream")
    again = client.get("/v1/stream", params={"conv_id": id_})
    assert (again.content, again.headers["content-type"]) == (
        sent.content,
        sent.headers["content-type"],
    )
    rest = client.get("/v1/stream", params={"conv_id": id_, "from": 40})
    assert rest.content == sent.content[40:]
    (state,) = lookup(client, "talk", "nothing", key=KEYS[0])
    assert (state["conversation_id"], state["is_done"]) == (id_, True)
    assert state["total_bytes"] == len(sent.content)
    assert lookup(client, "tal") == []
    # Another key does not find it, and cannot stop it.
    other = {"X-Api-Key": KEYS[1]}
    assert lookup(client, "talk", key=KEYS[1]) == []
    assert client.get("/v1/stream", params={"conv_id": id_}, headers=other).status_code == 404
    assert client.delete("/v1/stream", params={"conv_id": id_}, headers=other).status_code == 204
    assert len(lookup(client, "talk")) == 1
    for _ in range(2):
        assert client.delete("/v1/stream", params={"conv_id": id_}).status_code == 204
    assert client.get("/v1/stream", params={"conv_id": id_}).status_code == 404


def test_answers_that_are_not_streams_are_not_kept(client: httpx.Client) -> None:
    headers = {"X-Conversation-Id": "plain"}
    whole = client.post("/completion", json={**BODY, "stream": False}, headers=headers)
    assert "content" in whole.json()
    wrong = client.post("/completion", json={**BODY, "n_predict": "x"}, headers=headers)
    assert wrong.status_code == 400
    assert lookup(client, "plain") == []
    long = client.post("/completion", json=BODY, headers={"X-Conversation-Id": "x" * 513})
    assert long.status_code == 400
    assert client.get("/v1/stream").status_code == 400


def test_a_lost_client_reads_on(slow: httpx.Client) -> None:
    body = {**BODY, "n_predict": 40}
    whole = _texts(slow.post("/completion", json=body).text)
    with slow.stream(
        "POST", "/completion", json=body, headers={"X-Conversation-Id": "lost"}
    ) as answer:
        first = next(answer.iter_raw())
    assert b'"stop":true' not in first
    rest = slow.get("/v1/stream", params={"conv_id": "lost", "from": len(first)})
    assert _texts((first + rest.content).decode()) == whole


def test_a_stopped_stream_ends(slow: httpx.Client) -> None:
    headers = {"X-Conversation-Id": "stopped"}
    body = {**BODY, "n_predict": 200}
    cancelled = _cancelled(slow)
    with slow.stream("POST", "/completion", json=body, headers=headers) as answer:
        parts = answer.iter_raw()
        read = next(parts)
        slow.delete("/v1/stream", params={"conv_id": "stopped"})
        read += b"".join(parts)
    assert b'"stop":true' not in read
    wait_until(lambda: _cancelled(slow) >= cancelled + 1)


def test_a_new_request_stops_the_earlier_one_with_its_id(slow: httpx.Client) -> None:
    headers = {"X-Conversation-Id": "twice"}
    body = {**BODY, "n_predict": 200}
    with slow.stream("POST", "/completion", json=body, headers=headers) as first:
        parts = first.iter_raw()
        next(parts)
        second = slow.post("/completion", json=BODY, headers=headers)
        assert b'"stop":true' not in b"".join(parts)
    assert b'"stop":true' in second.content
    assert slow.get("/v1/stream", params={"conv_id": "twice"}).content == second.content


def test_a_whole_answer_ends_with_its_client(slow: httpx.Client) -> None:
    body = {**BODY, "stream": False, "n_predict": 200}
    cancelled = _cancelled(slow)
    with pytest.raises(httpx.ReadTimeout):
        slow.post("/completion", json=body, headers={"X-Conversation-Id": "whole"}, timeout=0.2)
    wait_until(lambda: _cancelled(slow) >= cancelled + 1)


def test_a_stream_of_lines_ends_with_its_client(slow: httpx.Client) -> None:
    """Ollama's routes send no server-sent events: nothing is kept."""
    body = {"model": "fake-model", "prompt": "the", "options": {"num_predict": 200}}
    cancelled = _cancelled(slow)
    with slow.stream(
        "POST", "/api/generate", json=body, headers={"X-Conversation-Id": "lines"}
    ) as answer:
        next(answer.iter_raw())
    wait_until(lambda: _cancelled(slow) >= cancelled + 1)
    assert lookup(slow, "lines") == []


@pytest.fixture
def loading() -> Iterator[tuple[httpx.Client, FakeModel]]:
    """A server with a model that loads until its gate is set, and has a request."""
    first, model = FakeModel(name="first", spread=2.0), FakeModel(name="slow", spread=3.0)
    model.gate.clear()
    with fakes.running(pool(first, model)) as client:
        try:
            yield client, model
        finally:
            model.gate.set()


def test_a_request_is_stopped_while_its_model_loads(
    loading: tuple[httpx.Client, FakeModel],
) -> None:
    client, model = loading
    headers, body = {"X-Conversation-Id": "early"}, {**BODY, "model": "slow"}
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(client.post, "/completion", json=body, headers=headers)
        wait_until(lambda: statuses(client)["slow"] == "loading" and bool(lookup(client, "early")))
        assert client.delete("/v1/stream", params={"conv_id": "early"}).status_code == 204
        refused = waiting.result(PATIENCE)
    assert refused.status_code == 400
    assert "cancelled" in refused.json()["error"]["message"]
    assert client.get("/v1/stream", params={"conv_id": "early"}).status_code == 404
    model.gate.set()


def test_a_client_that_is_lost_while_its_model_loads_reads_the_whole_stream(
    loading: tuple[httpx.Client, FakeModel],
) -> None:
    client, model = loading
    headers, body = {"X-Conversation-Id": "early"}, {**BODY, "model": "slow"}
    with pytest.raises(httpx.ReadTimeout):
        client.post("/completion", json=body, headers=headers, timeout=0.2)
    assert client.get("/v1/stream", params={"conv_id": "early"}).status_code == 503
    model.gate.set()
    wait_until(lambda: all(state["is_done"] for state in lookup(client, "early")))
    again = client.get("/v1/stream", params={"conv_id": "early"})
    assert again.status_code == 200
    assert _texts(again.text) == _texts(client.post("/completion", json=body).text)


def test_the_oldest_bytes_are_dropped() -> None:
    stream = Stream("", "x", max_bytes=8)
    stream.append(b"0123456789")
    stream.finish()

    async def read(offset: int) -> bytes:
        return b"".join([part async for part in stream.read(offset)])

    assert asyncio.run(read(2)) == b"23456789"
    assert stream.total_bytes == 10
    with pytest.raises(OffsetLost, match="byte 2"):
        stream.require(1)


def test_each_stream_is_found_once() -> None:
    streams = Streams()
    for id_ in ("a", "a::m", "a::m::n", "a:::m", "b::a", "ab"):
        streams.open("", id_)
    streams.open("another", "a")

    def found(*ids: str) -> list[str]:
        return [stream.id for stream in streams.lookup("", ids)]

    assert found("a") == ["a", "a::m", "a::m::n", "a:::m"]
    assert found("a::m", "a:") == ["a::m", "a::m::n", "a:::m"]
    assert found(*("a", "a::m") * 500) == found("a")


def test_ended_streams_are_dropped_in_the_order_of_their_ends() -> None:
    now = 0.0
    streams = Streams(limit=20_000, retention=300, clock=lambda: now)
    opened = [streams.open("", f"s{number}") for number in range(4)]
    for stream in opened:
        streams.append(stream, b"x" * 2900)
    assert streams.memory == sum(stream.memory for stream in opened)
    for stream in (opened[2], opened[0], opened[1]):
        streams.end(stream)
    streams.append(opened[3], b"x" * 1000)
    assert [stream.id for stream in streams.lookup("", ["s0", "s1", "s2", "s3"])] == [
        "s0",
        "s1",
        "s3",
    ]
    assert streams.memory <= 20_000
    now = 300.0
    assert streams.find("", "s0") is None
    assert streams.find("", "s3") is opened[3]  # it has not ended
    streams.stop_all()
    assert streams.find("", "s3") is None
    assert streams.memory == 0


def test_running_streams_stay_within_the_limit() -> None:
    streams = Streams(limit=20_000)
    opened = [streams.open("", f"s{number}") for number in range(4)]
    for _ in range(20):
        for stream in opened:
            streams.append(stream, b"x" * 1000)
            assert streams.memory == sum(each.memory for each in opened) <= 20_000
    assert all(stream.total_bytes == 20_000 for stream in opened)
    assert all(streams.find("", stream.id) is stream for stream in opened)


def _texts(stream: str) -> list[str]:
    """The fields `content` of the events, as JSON."""
    return [line.partition('"content":')[2].partition(",")[0] for line in stream.splitlines()]


def _cancelled(client: httpx.Client) -> float:
    """The number of completions that were cancelled."""
    name = 'hearth_completions_total{model="fake-model",outcome="cancelled"} '
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))
