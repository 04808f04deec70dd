"""Requests to the application in this process, without a network, and checks of the answers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.server.batch.batch_targets import in_process
from tests.server import adapter_folders, fakes, templates
from tools.fuzz.guided.cpu_limits import within_ticks

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message

_TICKS = 60  # seconds for an answer, not counting those in which the process is stopped
_JSON = ((b"content-type", b"application/json"),)
# With tokens to fill in the middle: without them /infill answers 501.
_SPECIAL = (*templates.CHATML_SPECIAL, "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
_UNAVAILABLE = (501, 503)  # what the server says that it cannot do


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request whose client disconnects after `leave` messages of the answer."""

    path: str
    method: str = "POST"
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = _JSON
    body: tuple[bytes, ...] = ()
    leave: int = 10**9


class _Server:
    """The application of a fake model, in an event loop that runs while a request is answered.

    It is never stopped: a process has one, and its threads end with the process.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._started = contextlib.AsyncExitStack()
        service = fakes.fake_service(
            fakes.gemma_like(special=_SPECIAL),
            template=templates.CHATML,
            slots=2,
            batch=2,
            context=96,
            adapters=adapter_folders.PLACES,
        )
        target = in_process(fakes.pool(service), parallel=1)
        self._app: ASGIApp = self._runner.run(self._started.enter_async_context(target))._app

    def send(self, request: Request) -> list[Message]:
        """The messages of the answer; raises TimeoutError and the application's errors."""
        return self._runner.run(within_ticks(self._send(request), _TICKS))

    async def _send(self, request: Request) -> list[Message]:
        sent: list[Message] = []
        unread = list(request.body) or [b""]
        disconnected = asyncio.Event()

        async def receive() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(0), "more_body": bool(unread)}
            await disconnected.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)
            if len(sent) >= request.leave:
                disconnected.set()

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode(errors="replace"),
            "query_string": request.query,
            "root_path": "",
            "headers": list(request.headers),
            "client": ("127.0.0.1", 9),
            "server": ("127.0.0.1", 80),
        }
        await self._app(scope, receive, send)
        return sent


@functools.cache
def _server() -> _Server:
    return _Server()


def answer(request: Request) -> int:
    """The status of the answer, which must be complete; AssertionError for a defect."""
    sent = _server().send(request)
    if request.leave < len(sent):
        return 0
    assert [message["type"] for message in sent[:1]] == ["http.response.start"], sent[:2]
    assert all(message["type"] == "http.response.body" for message in sent[1:])
    status: int = sent[0]["status"]
    headers = {name.lower(): value for name, value in sent[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in sent[1:])
    assert status < 500 or status in _UNAVAILABLE, f"{status}: {body[:500]!r}"
    if headers.get(b"content-type", b"").startswith(b"application/json") and body:
        json.loads(body, parse_constant=_refuse)
    return status


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
