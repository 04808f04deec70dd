"""Targets of a batch's requests: a bundle in this process, or a server."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from hearthd.server.batch.files import BatchRequest, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from http.client import HTTPResponse

    from starlette.types import ASGIApp, Message

    from hearthd.server.services.model_pool import ModelPool

_TIMEOUT = 24 * 3600  # seconds: a long answer of a busy server takes long


class CannotReach(Exception):
    """The server of a batch does not answer."""


class BatchTarget(Protocol):
    """Answers requests; `parallel` of them keep it busy."""

    parallel: int

    async def post(self, request: BatchRequest) -> Reply:
        """The reply to a request; raises CannotReach."""


class AppTarget(BatchTarget):
    """An ASGI application in this process."""

    def __init__(self, app: ASGIApp, *, parallel: int) -> None:
        self._app = app
        self.parallel = parallel

    @override
    async def post(self, request: BatchRequest) -> Reply:
        sent: list[Message] = []
        unread = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def receive() -> Message:
            if unread:
                return unread.pop()
            await asyncio.Event().wait()  # the client never disconnects
            raise AssertionError("unreachable")

        async def send(message: Message) -> None:
            sent.append(message)

        path, _, query = request.url.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (b"host", b"batch"),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(request.body)).encode()),
            ],
            "client": None,
            "server": None,
        }
        await self._app(scope, receive, send)
        headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return _reply(sent[0]["status"], body, headers)


@contextlib.asynccontextmanager
async def in_process(pool: ModelPool, parallel: int) -> AsyncIterator[AppTarget]:
    """The application of a pool, while it is started; raises Unavailable, as SelfTestFailed."""
    from hearthd.server.app import create_app

    started = asyncio.Event()
    app = create_app(pool, on_start=started.set, webui=False)
    async with app.router.lifespan_context(app):
        await started.wait()
        if problem := pool.unavailable():
            raise problem
        yield AppTarget(app, parallel=parallel)


class UrlTarget(BatchTarget):
    """A server at a URL. A context manager."""

    def __init__(self, url: str, *, api_key: str | None, parallel: int) -> None:
        self.parallel = parallel
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._threads = ThreadPoolExecutor(parallel, "batch")

    def __enter__(self) -> UrlTarget:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @override
    async def post(self, request: BatchRequest) -> Reply:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._send, request)

    def _send(self, request: BatchRequest) -> Reply:
        http = urllib.request.Request(self._url + request.url, request.body, self._headers)
        try:
            with _open(http) as response:
                assert response.status is not None, "HTTP has one"
                return _reply(response.status, response.read(), _lower(response.headers.items()))
        # HTTPException: the server ended within its response, for example.
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise CannotReach(f"{self._url} does not answer: {reason}") from error


def _open(request: urllib.request.Request) -> HTTPResponse | urllib.error.HTTPError:
    """The response, whatever its status is."""
    try:
        response: HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        return error
    return response


def _lower(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


def _reply(status: int, body: bytes, headers: Mapping[str, Any]) -> Reply:
    try:
        retry_after = float(headers["retry-after"])
    except (KeyError, ValueError):
        retry_after = None
    return Reply(
        status=status,
        body=body,
        request_id=headers.get("x-request-id", ""),
        retry_after=retry_after,
    )
