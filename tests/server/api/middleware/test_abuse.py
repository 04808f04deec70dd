"""Clients that hurry, dawdle or send nonsense, against a real server with a fake runtime."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.patience import PATIENCE, wait_until
from tests.server import fakes
from tests.server.api.operator.test_operator_routes import figure, figures, wait_until_free
from tests.server.certificates import tls
from tests.server.generate_client import LIBRARY, answer
from tests.server.tls import encrypted, trusting

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["http", "https"])
def client(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    service = fakes.fake_service(LIBRARY, delay=0.01, slots=2)
    with fakes.running(service, tls=tls() if request.param == "https" else None) as client:
        yield client


def connect(client: httpx.Client, *, receive_buffer: int = 0) -> socket.socket:
    """A connection, with TLS where the client has it."""
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(PATIENCE)
    connection.connect((client.base_url.host, client.base_url.port))
    return encrypted(connection, client.base_url.scheme)


def request(body: bytes, length: int | None = None) -> bytes:
    """A request for /generate, with the head's word for the body's length."""
    head = (
        f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    return head.encode() + body


def test_the_server_answers_after_200_disconnects(client: httpx.Client) -> None:
    async def leave(impatient: httpx.AsyncClient) -> int | None:
        try:
            body = {"prompt": "the dog", "max_tokens": 60}
            return (await impatient.post("/generate", json=body)).status_code
        except httpx.TimeoutException:
            return None

    async def crowd() -> list[int | None]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(
            base_url=client.base_url, timeout=0.5, limits=limits, verify=trusting()
        ) as impatient:
            return list(await asyncio.gather(*(leave(impatient) for _ in range(200))))

    statuses = asyncio.run(crowd())
    began = time.monotonic()
    body = {"prompt": "the dog", "max_tokens": 2}
    while (response := client.post("/generate", json=body)).status_code == 429:
        time.sleep(0.05)  # the queue is full until the server has seen who left
    assert response.json()["usage"]["completion_tokens"] == 2
    assert time.monotonic() - began < PATIENCE
    assert set(statuses) <= {None, 200, 429}
    assert None in statuses
    wait_until_free(client)

    def every_answer_is_of_a_request() -> bool:
        metrics = figures(client)
        ended = [
            value for (name, _), value in metrics.items() if name == "hearth_completions_total"
        ]
        accepted = figure(metrics, "http_requests_total", "/generate", "200")
        accepted += figure(metrics, "http_requests_total", "/generate", "499")
        return sum(ended) <= accepted

    wait_until(every_answer_is_of_a_request)  # a completion ends before its request does


def test_other_clients_do_not_wait_for_a_slow_reader(client: httpx.Client) -> None:
    with connect(client) as slow:
        body = b'{"prompt": "the dog", "max_tokens": 50, "stream": true, "logprobs": 20}'
        slow.sendall(request(body))
        for _ in range(3):
            assert slow.recv(1)
            answer(client, max_tokens=20, seed=1)
        # Its answer is ready long before it has read it, and holds no slot.
        wait_until_free(client)
        received = b""
        while b"finish_reason" not in received:
            received += slow.recv(4096)


def test_a_body_with_two_lengths_closes_the_connection(client: httpx.Client) -> None:
    body = b'{"prompt": "the dog", "max_tokens": 1}'
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    ambiguous = request(chunked).replace(b"Host:", b"Transfer-Encoding: chunked\r\nHost:")
    with connect(client) as connection:
        connection.sendall(ambiguous + request(body))
        received = b""
        while part := connection.recv(4096):
            received += part
    assert received.count(b"HTTP/1.1 200 ") == 1
    assert b"connection: close\r\n" in received.lower()


def test_a_slow_sender_holds_only_its_connection(client: httpx.Client) -> None:
    body = b'{"prompt": "the dog", "max_tokens": 2}'
    slow = [connect(client) for _ in range(50)]
    try:
        for connection in slow:
            connection.sendall(request(body)[:-1])
        assert answer(client, max_tokens=2)["usage"]["completion_tokens"] == 2
        metrics = figures(client)
        assert figure(metrics, "slots_busy") == figure(metrics, "queued") == 0
        slow[0].sendall(body[-1:])
        assert slow[0].recv(4096).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in slow:
            connection.close()
    answer(client, max_tokens=1)


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"\x00\xff\xfe garbage", "application/json", 400),
        (b"", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}", "application/json", 400),
        (b'{"prompt": "x", "max_tokens": ' + b"9" * 5000 + b"}", "application/json", 400),
        (b'{"prompt": "x", "temperature": NaN}', "application/json", 400),
        (b'{"prompt": "x"', "application/json", 400),
        (b"<prompt>x</prompt>", "application/xml", 400),
        (b'{"prompt": {' + b'"a": {' * 900 + b"}" * 901 + b"}", "application/json", 400),
    ],
)
def test_invalid_bodies_are_rejected(
    client: httpx.Client, body: bytes, content_type: str, status: int
) -> None:
    response = client.post("/generate", content=body, headers={"Content-Type": content_type})
    assert response.status_code == status, response.text
    assert response.json()["error"]["code"] == status
    answer(client, max_tokens=1)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
    ],
    ids=["a handshake", "no target", "no length", "a negative length", "no chunk", "many fields"],
)
def test_invalid_http_is_rejected(client: httpx.Client, raw: bytes) -> None:
    with connect(client) as connection:
        received = b""
        try:
            connection.sendall(raw)
            with suppress(OSError):  # not connected any more
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(4096):
                received += part
        except (ConnectionError, ssl.SSLError):
            pass  # refused before all of it was sent
    assert not received.startswith(b"HTTP/1.1 5")
    answer(client, max_tokens=1)


def test_a_client_that_stops_in_its_body_is_dropped(client: httpx.Client) -> None:
    for _ in range(20):
        with connect(client) as connection:
            connection.sendall(request(b'{"prompt": "x"', length=5000))
    answer(client, max_tokens=1)
    metrics = wait_until_free(client)
    assert figure(metrics, "completions_total", "length") == 1
