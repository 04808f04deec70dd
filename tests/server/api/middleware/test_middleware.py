"""What stands around the routes: keys, ids, the size of bodies, other origins, the log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from typing_extensions import override

from hearthd.bundle import REQUEST_MEMORY
from hearthd.server import logs
from hearthd.server.api.middleware.access_log import Access
from hearthd.server.app import Guards
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.generate_client import LIBRARY, POISON, answer
from tests.server.test_logs import formatted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from starlette.types import Message, Receive, Scope, Send

KEYS = ("first-key", "second-key")
ORIGIN = "https://page.example"
LIMIT = 2000


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    guards = Guards(api_keys=KEYS, cors_origins=(ORIGIN,))
    pool = fakes.pool(fakes.fake_service(LIBRARY), max_body_bytes=LIMIT)
    with fakes.running(pool, guards=guards) as client:
        yield client


@pytest.fixture(scope="module")
def open_client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(LIBRARY, poison=POISON)) as client:
        yield client


# Keys.


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer first-key"},
        {"Authorization": "bearer  second-key"},
        {"X-Api-Key": "second-key"},
    ],
)
def test_every_key_is_accepted(client: httpx.Client, headers: dict[str, str]) -> None:
    body = {"prompt": "x", "max_tokens": 1}
    assert client.post("/generate", json=body, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer first-kez"},
        {"Authorization": "Bearer first-key2"},
        {"Authorization": "first-key"},
        {"Authorization": "Basic first-key"},
        {"Authorization": "Bearer wrong", "X-Api-Key": "first-key"},
        {"X-Api-Key": "first-key,second-key"},
        {"X-Api-Key": b"\xff\xfe"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/generate"), ("GET", "/metrics"), ("GET", "/nope")]
)
def test_requests_without_a_key_are_rejected(
    client: httpx.Client, headers: dict[str, Any], method: str, path: str
) -> None:
    response = client.request(method, path, headers=headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    error = response.json()["error"]
    assert error["type"] == "authentication_error"
    assert error["code"] == 401
    assert error["request_id"] == response.headers["X-Request-Id"]
    assert "first-key" not in response.text


def test_every_route_except_probes_and_page_requires_a_key(client: httpx.Client) -> None:
    document = client.get("/openapi.json", headers={"X-Api-Key": KEYS[0]}).json()
    paths = [(method, path) for path, entry in document["paths"].items() for method in entry]
    assert ("post", "/generate") in paths
    open_ones = {path for method, path in paths if client.request(method, path).status_code != 401}
    assert open_ones == {"/health", "/health/ready", "/v1/models"}
    page = client.get("/")
    assert page.status_code == 200
    parts = re.findall(r'(?:src|href)="/?(web/[^"]+)"', page.text)
    assert parts
    assert {client.get(f"/{part}").status_code for part in parts} == {200}
    assert client.get("/web/../props").status_code == 401


# Ids.


@pytest.mark.parametrize("request_id", ["a", "7f3e-1.b:c_D", "x" * 64])
def test_a_plain_request_id_is_kept(open_client: httpx.Client, request_id: str) -> None:
    response = open_client.get("/nope", headers={"X-Request-Id": request_id})
    assert response.headers["X-Request-Id"] == request_id
    assert response.json()["error"]["request_id"] == request_id


@pytest.mark.parametrize("request_id", [None, "", "x" * 65, "a b", "a=1", b"\xc3\xbc"])
def test_any_other_request_id_is_replaced(
    open_client: httpx.Client, request_id: str | bytes | None
) -> None:
    headers: Any = {} if request_id is None else {"X-Request-Id": request_id}
    ids = {open_client.get("/health", headers=headers).headers["X-Request-Id"] for _ in range(2)}
    assert len(ids) == 2
    assert request_id not in ids


def test_an_error_in_a_stream_has_the_id(open_client: httpx.Client) -> None:
    body = {"prompt": [POISON], "stream": True}
    response = open_client.post("/generate", json=body, headers={"X-Request-Id": "mine"})
    assert '"request_id": "mine"' in response.text


# Bodies.


def padded(size: int) -> bytes:
    return json.dumps({"prompt": "x", "max_tokens": 1}).encode().ljust(size)


def chunked(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 700):
        yield body[start : start + 700]


@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_large_body_is_a_413(client: httpx.Client, in_chunks: bool) -> None:
    headers = {"X-Api-Key": KEYS[0], "Content-Type": "application/json"}
    for size, status in ((LIMIT, 200), (LIMIT + 1, 413), (3 * LIMIT, 413), (LIMIT, 200)):
        content = chunked(padded(size)) if in_chunks else padded(size)
        response = client.post("/generate", content=content, headers=headers)
        assert response.status_code == status
        if status == 413:
            assert response.json()["error"]["message"] == (
                f"body: too large: expected at most {LIMIT} bytes (--max-body-bytes); if it holds "
                "a prompt, the prompt is too long"
            )


def test_a_gigabyte_is_rejected_before_it_is_read(client: httpx.Client) -> None:
    address = (client.base_url.host, client.base_url.port or 80)
    with socket.create_connection(address, timeout=PATIENCE) as raw:
        raw.sendall(
            b"POST /generate HTTP/1.1\r\nHost: x\r\nX-Api-Key: first-key\r\n"
            b"Content-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n"
        )
        received = b""
        while part := raw.recv(4096):
            received += part
    assert received.startswith(b"HTTP/1.1 413 ")


def send(client: httpx.Client, body: bytes) -> httpx.Response:
    return client.post("/generate", content=body, headers={"Content-Type": "application/json"})


def test_a_body_that_takes_too_much_memory_is_rejected(open_client: httpx.Client) -> None:
    for body, message in (
        (b'{"prompt": [' + b"[]," * 500_000 + b"1]}", "too many values"),
        (padded(REQUEST_MEMORY // 8 + 1), f"expected at most {REQUEST_MEMORY // 8} bytes, or"),
    ):
        headers = {"Content-Type": "application/json"}
        refused = open_client.post("/generate", content=body, headers=headers)
        assert refused.status_code == 413
        assert message in refused.json()["error"]["message"]


# Other origins.


@pytest.mark.parametrize("path", ["/generate", "/v1/messages"])
def test_an_allowed_origin_passes_cors(client: httpx.Client, path: str) -> None:
    headers = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    response = client.options(path, headers=headers)
    assert response.status_code == 200
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert response.headers["Access-Control-Allow-Methods"] == "GET, HEAD, POST, DELETE, OPTIONS"
    refused = client.post(path, headers={"Origin": ORIGIN})
    assert refused.status_code == 401
    assert refused.headers["Access-Control-Allow-Origin"] == ORIGIN
    other = client.options(path, headers={**headers, "Origin": "https://other.example"})
    assert other.status_code == 400
    assert "Access-Control-Allow-Origin" not in other.headers


def test_no_origin_passes_cors_by_default(open_client: httpx.Client) -> None:
    response = open_client.get("/health", headers={"Origin": ORIGIN})
    assert not [name for name in response.headers if name.startswith("access-control")]


# The log.


class Kept(logging.Handler):
    """The access log by request id, which a line is written under."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str | None, logging.LogRecord] = {}

    def is_kept(self, id_: str) -> bool:
        return id_ in self._kept

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._kept[logs.request_id()] = record

    def lines(self, *ids: str) -> list[tuple[str, dict[str, Any]]]:
        """The lines of these requests: each message with its fields."""
        records = [self._kept[id_] for id_ in ids]
        return [(record.getMessage(), vars(record)["fields"]) for record in records]

    def levels(self, *ids: str) -> list[str]:
        """The levels of these lines."""
        self.lines(*ids)
        return [self._kept[id_].levelname for id_ in ids]


@pytest.fixture
def access(caplog: pytest.LogCaptureFixture) -> Iterator[Kept]:
    caplog.set_level(logging.DEBUG, "hearthd.server")
    logger, kept = logging.getLogger("hearthd.server.api.middleware.access_log"), Kept()
    logger.addHandler(kept)
    yield kept
    logger.removeHandler(kept)


def test_probes_and_files_of_the_page_are_logged_at_debug(
    client: httpx.Client, access: Kept
) -> None:
    quiet = ("/", "/web/main.js", "/health", "/v1/health", "/health/ready", "/metrics")
    shown = ("/v1/models", "/web/nothing.js", "/props")
    for path in (*quiet, *shown):
        headers = {"X-Request-Id": path.replace("/", "."), "X-Api-Key": KEYS[0]}
        client.get(path, headers=headers)
    assert set(access.levels(*(path.replace("/", ".") for path in quiet))) == {"DEBUG"}
    assert set(access.levels(*(path.replace("/", ".") for path in shown))) == {"INFO"}
    client.get("/metrics", headers={"X-Request-Id": "refused"})
    assert access.levels("refused") == ["INFO"]


def test_the_address_is_that_of_the_client_behind_a_local_proxy(
    client: httpx.Client, access: Kept
) -> None:
    client.get("/health", headers={"X-Request-Id": "far", "X-Forwarded-For": "203.0.113.7"})
    ((_, fields),) = access.lines("far")
    assert fields["client"] == "203.0.113.7"


def test_each_request_is_logged_without_its_prompt(
    client: httpx.Client, access: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    def ids(id_: str) -> dict[str, str]:
        return {"X-Request-Id": id_}

    keyed = ids("one") | {"X-Api-Key": KEYS[0]}
    body = {"prompt": "the dog", "max_tokens": 3, "seed": 1}
    used = client.post("/generate", json=body, headers=keyed).json()["usage"]
    client.get("/health?secret=dog", headers=ids("two"))
    client.post("/generate", json=body, headers=ids("three"))
    (one, first), (two, second), (_, third) = access.lines("one", "two", "three")
    assert (one, two) == ("POST /generate", "GET /health")
    assert first["status"] == 200
    assert first["prompt_tokens"] == used["prompt_tokens"]
    assert first["completion_tokens"] == 3
    assert first["ms"] > 0
    assert first["model"] == "fake-model"
    assert set(second) == {"client", "status", "ms"}
    assert second["client"] == "127.0.0.1"
    assert third["status"] == 401
    assert "dog" not in caplog.text
    assert KEYS[0] not in caplog.text


def test_an_error_is_logged_without_the_value(open_client: httpx.Client, access: Kept) -> None:
    for id_, body in (
        ("wrong", {"prompt": "a", "top_k": "secret"}),
        ("long", {"prompt": "a" * 9999}),
        ("key", {"prompt": "a", "logit_bias": {"k" * 9999: "secret"}}),
    ):
        answer = open_client.post("/generate", json=body, headers={"X-Request-Id": id_})
        assert answer.status_code == 400
    (_, wrong), (_, long), (_, key) = access.lines("wrong", "long", "key")
    assert wrong["error"] == "top_k: expected a valid integer"
    assert long["error"].startswith("prompt is too long: 9999 bytes > 1024 maximum")
    assert len(key["error"]) < 300
    text = formatted("text", "POST /generate", fields=wrong)
    assert " status=400 " in text
    assert ' error="top_k: expected a valid integer"' in text


def test_a_path_in_the_log_adds_no_fields(open_client: httpx.Client, access: Kept) -> None:
    open_client.get("/a%20client=::1%20status=200", headers={"X-Request-Id": "path"})
    ((message, _),) = access.lines("path")
    assert message == "GET /a%20client=::1%20status=200"


def test_a_stream_is_logged_when_it_ends(open_client: httpx.Client, access: Kept) -> None:
    fields = {"prompt": "a", "max_tokens": 4, "stream": True}
    answer = open_client.post("/generate", json=fields, headers={"X-Request-Id": "stream"})
    assert answer.status_code == 200
    (line,) = access.lines("stream")
    assert line[1]["completion_tokens"] == 4


def test_a_request_is_counted_and_logged_before_the_end_of_its_response(access: Kept) -> None:
    """A client reads the metrics, and an operator the log, right after an answer."""
    counted: list[tuple[str, int]] = []
    found: list[tuple[int, bool]] = []  # at each piece
    pieces: list[Message] = [
        {"type": "http.response.start", "status": 201, "headers": []},
        {"type": "http.response.body", "body": b"x", "more_body": True},
        {"type": "http.response.body", "body": b"y"},
    ]

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        for piece in pieces:
            await send(piece)

    async def send(_message: Message) -> None:
        found.append((len(counted), access.is_kept("order")))

    headers = [(b"x-request-id", b"order")]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    asyncio.run(Access(app, lambda *request: counted.append(request))(scope, mock.Mock(), send))
    assert found == [(0, False), (0, False), (1, True)]
    assert counted == [("none", 201)]


def test_an_internal_error_is_logged_once_and_answered(
    open_client: httpx.Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("hearthd.server.metrics.ServerMetrics.text", broken)
    response = open_client.get("/metrics", headers={"X-Request-Id": "mine"})
    assert response.status_code == 500
    assert response.headers["X-Request-Id"] == "mine"
    assert response.json()["error"]["type"] == "server_error"
    assert response.json()["error"]["request_id"] == "mine"
    assert "secret" not in response.text
    assert caplog.text.count("RuntimeError: a secret") == 1
    monkeypatch.undo()
    answer(open_client, max_tokens=1)
