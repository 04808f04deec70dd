"""Answers the requests of a batch with an ASGI application of this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.server.batch_requests.batch_request import BatchTarget, reply_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message

    from hearthd.server.batch_requests.batch_request import BatchRequest, Reply


class AppTarget(BatchTarget):
    """An ASGI application in this process.

    `state` is in the scope of each request.
    """

    def __init__(
        self, app: ASGIApp, *, parallel: int, state: Mapping[str, Any] | None = None
    ) -> None:
        self._app = app
        self._state = state or {}
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
            "state": dict(self._state),
        }
        # The application answers an invalid request without a pause; other requests come between.
        await asyncio.sleep(0)
        await self._app(scope, receive, send)
        headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return reply_of(sent[0]["status"], body, headers)
