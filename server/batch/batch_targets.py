"""Targets of a batch's requests: a bundle in this process, or a server."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.server.batch_requests.app_target import AppTarget
from hearthd.server.batch_requests.batch_request import (
    BatchRequest,
    BatchTarget,
    CannotReach,
    Reply,
    reply_of,
)
from hearthd.server.server_url import server_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from http.client import HTTPResponse

    from hearthd.server.services.model_pool import ModelPool

_TIMEOUT = 24 * 3600  # seconds: a long answer of a busy server takes long


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
        self._url = server_url(url)
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
                return reply_of(response.status, response.read(), _lower(response.headers.items()))
        # HTTPException: the server ended within its response, for example.
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            reason = getattr(reason, "strerror", None) or reason
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
