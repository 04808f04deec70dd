"""Bytes that are not HTTP, and requests in very many pieces."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING
from unittest import mock

import h11
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from hearthd.server.api.http_errors import ErrorResponse
from hearthd.server.process import lingering, request_parser
from hearthd.server.process.draining_server import DrainingServer
from hearthd.server.process.listening import bind
from tests.patience import PATIENCE
from tests.server.process.test_connection_ends import HEALTH, connect
from tests.server.process.test_fault_isolation import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    Running = tuple[DrainingServer, httpx.Client]

__all__ = ["running"]  # a fixture

HOST = b"Host: x\r\n"
CHUNKED = HOST + b"Transfer-Encoding: chunked\r\n\r\n"
HEAD = b"GET /health HTTP/1.1\r\n" + HOST
MANY = 2**15  # headers or chunks
TINY = b"1\r\n \r\n"  # a chunk


def responses(client: httpx.Client, *sent: bytes, count: int = 1) -> list[tuple[int, bytes]]:
    """The first responses."""
    found = []
    with connect(client) as connection, contextlib.ExitStack() as files:
        for index, piece in enumerate(sent):
            time.sleep(0.2 * (index > 0))  # the server has answered the earlier pieces
            connection.sendall(piece)
        file = files.enter_context(connection.makefile("rb"))
        for _ in range(count):
            status = int(file.readline().split()[1])
            headers = http.client.parse_headers(file)
            found.append((status, file.read(int(headers["Content-Length"]))))
    return found


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        (b"GET\r\n\r\n", 400, "invalid HTTP: illegal request line"),
        (b"\0\r\n\r\n", 400, "invalid HTTP: control character"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Missing mandatory Host"),
        (b"GET / HTTP/3.0\r\n" + HOST + b"\r\n", 505, "got HTTP/3.0, expected HTTP/1.1"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(27), 505, "got HTTP/2.0, expected"),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", 501, "Only Transfer-Encoding: chunked"),
        (HEAD + b"X: " + b"x" * request_parser.MAX_HEAD, 431, "at most 100 headers and"),
        (HEAD + b"X: x\r\n" * MANY + b"\r\n", 431, "at most 100 headers and"),
        (HEAD + b"X: x\r\n" * 100 + b"\r\n", 431, "at most 100 headers and"),
        (b"POST /generate HTTP/1.1\r\n" + CHUNKED + b"x\r\n", 400, "invalid HTTP"),
    ],
)
def test_what_is_not_http_gets_an_error_in_json(
    running: Running, sent: bytes, status: int, message: str
) -> None:
    _, client = running
    [(found, body)] = responses(client, sent)
    assert found == status
    error = ErrorResponse.model_validate_json(body).error
    assert error.code == status
    assert message in error.message


@pytest.mark.parametrize("start", [b"\x16\x03\x01\x02\0", b"\x16\x03\x01\r\n\r\n"])
def test_tls_is_refused_by_a_plain_connection(start: bytes) -> None:
    parser = request_parser.RequestParser()
    parser.receive_data(start)
    with pytest.raises(h11.RemoteProtocolError, match="got TLS, expected plain HTTP"):
        parser.next_event()


def test_a_head_is_as_long_in_a_pipeline(running: Running) -> None:
    _, client = running
    found = responses(client, HEALTH + HEAD + b"X: x\r\n" * MANY + b"\r\n", count=2)
    assert [status for status, _ in found] == [200, 431]


@pytest.mark.parametrize("path", [b"/missing", b"/health", b"/generate"])
def test_an_invalid_chunk_after_the_response_logs_no_error(
    running: Running, path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _, client = running
    method = b"PUT" if path == b"/health" else b"GET"
    found = responses(client, method + b" " + path + b" HTTP/1.1\r\n" + CHUNKED + TINY, b"x\r\n")
    assert [status // 100 for status, _ in found] == [4]
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_a_turn_parses_few_chunks() -> None:
    parser = request_parser.RequestParser()
    parser.receive_data(b"POST /generate HTTP/1.1\r\n" + CHUNKED + TINY * 1000 + b"0\r\n\r\n")
    counts = []
    while parser.their_state is not h11.DONE:
        parser.begin_turn()
        counts.append(0)
        while parser.their_state is not h11.DONE and parser.next_event() is not h11.NEED_DATA:
            counts[-1] += 1
        assert parser.is_behind or parser.their_state is h11.DONE
    assert max(counts) <= 100


def test_a_head_that_arrives_at_once_is_limited() -> None:
    parser = request_parser.RequestParser()
    parser.receive_data(HEAD + b"X: x\r\n" * MANY + b"\r\n")
    with pytest.raises(h11.RemoteProtocolError):
        parser.next_event()
    assert parser.their_state is h11.ERROR


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (HEAD + b"X:", b"\0\r\n\r\n"),
        (HEAD + b"X:", b"\r \r\n\r\n"),
        (CHUNKED + b"0\r\nX:", b"\f\r\n\r\n"),
        (CHUNKED + b"1;", b"\n\r\n"),
    ],
)
def test_an_invalid_line_of_spaces_is_rejected_in_linear_time(start: bytes, end: bytes) -> None:
    start = start.replace(CHUNKED, b"POST /generate HTTP/1.1\r\n" + CHUNKED)
    parser = request_parser.RequestParser()
    parser.receive_data(start + b" " * (2**14 - 100) + end)
    began = time.process_time()
    with pytest.raises(h11.RemoteProtocolError, match="in a"):
        list(iter(parser.next_event, h11.NEED_DATA))
    assert time.process_time() - began < 0.1


def test_trailers_are_limited_in_number() -> None:
    parser = request_parser.RequestParser()
    head = b"POST /generate HTTP/1.1\r\n" + CHUNKED
    parser.receive_data(head + b"0\r\n" + b"X: x\r\n" * MANY + b"\r\n")
    assert isinstance(parser.next_event(), h11.Request)
    with pytest.raises(h11.RemoteProtocolError, match="head too long"):
        parser.next_event()


def test_a_long_body_may_follow_empty_trailers() -> None:
    parser = request_parser.RequestParser()
    head = b"POST /generate HTTP/1.1\r\n"
    parser.receive_data(head + CHUNKED + b"0\r\n\r\n" + head + HOST)
    parser.receive_data(b"Content-Length: 100000\r\n\r\n" + b" " * 100000)
    assert isinstance(parser.next_event(), h11.Request)
    assert isinstance(parser.next_event(), h11.EndOfMessage)


@pytest.mark.parametrize("has_begun", [False, True])
def test_an_invalid_chunk_before_the_end_of_the_response_logs_no_error(
    has_begun: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(lingering, "SECONDS", 1.0)  # the server ends when the connection does
    app = FastAPI()
    goes_on = threading.Event()

    async def parts() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.to_thread(goes_on.wait, PATIENCE)
        yield b"y"

    @app.get("/")
    async def answer() -> StreamingResponse:
        if not has_begun:
            await asyncio.to_thread(goes_on.wait, PATIENCE)
        return StreamingResponse(parts())

    server = DrainingServer(app, mock.Mock(idle=True))
    bound = bind("127.0.0.1", 0)
    bound.listen()
    thread = threading.Thread(target=server.serve_on, args=(bound,))
    thread.start()
    try:
        with socket.create_connection(bound.getsockname(), timeout=PATIENCE) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n" + CHUNKED + TINY)
            if has_begun:
                assert connection.recv(1000).startswith(b"HTTP/1.1 200")
            time.sleep(0.1)
            connection.sendall(b"x\r\n")
            if not has_begun:
                assert connection.recv(1000).startswith(b"HTTP/1.1 400")
            while connection.recv(1000):
                pass
            goes_on.set()
            server.handle_exit(15, None)
            thread.join(PATIENCE)
    finally:
        goes_on.set()
        server.handle_exit(15, None)
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_a_body_in_tiny_chunks_is_read_and_its_connection_kept(running: Running) -> None:
    _, client = running
    body = json.dumps({"prompt": "x", "max_tokens": 1}).encode() + b" " * 1000
    with connect(client) as connection:
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        start = b"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\n" + CHUNKED
        for _ in range(2):
            connection.sendall(start + chunks[:2000])
            time.sleep(0.05)
            connection.sendall(chunks[2000:] + b"0\r\n\r\n")
            response = http.client.HTTPResponse(connection)
            response.begin()
            assert response.status == 200
            assert response.getheader("Connection") is None
            json.loads(response.read())


def test_a_connection_is_closed_after_an_early_response_to_chunks(running: Running) -> None:
    _, client = running
    with connect(client) as connection:
        connection.sendall(b"POST /missing HTTP/1.1\r\n" + CHUNKED + TINY)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 404
        assert response.getheader("Connection") == "close"
        response.read()
