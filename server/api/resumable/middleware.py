"""ASGI middleware: streams that go on without their client, as llama-server has them.

A request with the header X-Conversation-Id is answered in a task of its own. If the answer is a
stream, its bytes are kept in a Stream. The client is its first reader: it can disconnect
and read on with GET /v1/stream.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import StreamingResponse

from hearthd.server.api.http_errors import encode, fault, respond
from hearthd.server.api.middleware.api_keys import sent_key
from hearthd.server.api.resumable.streams import OffsetLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from hearthd.server.api.resumable.streams import Stream, Streams

log = logging.getLogger(__name__)

HEADER = "X-Conversation-Id"
_MAX_ID = 512  # characters


class ResumableStreams:
    """Keep the streams of requests with a conversation id in `streams`.

    `has_keys` says whether streams belong to the API key of their request.
    """

    def __init__(self, app: ASGIApp, streams: Streams, *, has_keys: bool) -> None:
        self._app = app
        self._streams = streams
        self._has_keys = has_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        id_ = headers.get(HEADER)
        if not id_ or scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif len(id_) > _MAX_ID:
            problem = f"{HEADER}: got {len(id_)} characters, expected at most {_MAX_ID}"
            await respond(fault(400, problem))(scope, receive, send)
        else:
            owner = sent_key(headers) if self._has_keys else ""
            answer = _Answer(self._streams, self._streams.open(owner, id_), receive, send)
            await answer.run(self._app, scope)


class _Answer:
    """One request, whose answer goes to its stream, or to its client if it is not a stream."""

    def __init__(self, streams: Streams, stream: Stream, receive: Receive, send: Send) -> None:
        self._streams = streams
        self._stream = stream
        self._receive = receive
        self._send = send
        self._has_body = False
        self._needs_client = asyncio.Event()
        self._is_stream = False
        self._begun = asyncio.Event()

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Answer the request; return when it is answered, or its client has disconnected."""
        scope.setdefault("state", {})["needs_client"] = self._needs_client
        task = asyncio.create_task(self._answer(app, scope))
        self._stream.cancel = task.cancel
        beginning = asyncio.create_task(self._begun.wait())
        try:
            await asyncio.wait({task, beginning}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            beginning.cancel()
        if self._is_stream:
            task.add_done_callback(_log_error)
            await reading(self._stream)(scope, self._receive, self._send)
            return
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
        elif not self._begun.is_set():
            problem = f"the request was cancelled by another one with its {HEADER}"
            await respond(fault(400, problem))(scope, self._receive, self._send)

    async def _answer(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive_body, self._keep)
        finally:
            if self._is_stream:
                self._streams.end(self._stream)
            else:
                self._streams.drop(self._stream)

    async def _receive_body(self) -> Message:
        if self._has_body:
            await self._needs_client.wait()  # what comes after the body is the disconnect
        message = await self._receive()
        self._has_body = not message.get("more_body")
        return message

    async def _keep(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = Headers(raw=message["headers"])
            self._is_stream = headers.get("content-type", "").startswith("text/event-stream")
            self._stream.headers = message["headers"]
            self._begun.set()
            if not self._is_stream:
                self._needs_client.set()
        if not self._is_stream:
            await self._send(message)
        elif body := message.get("body"):
            self._streams.append(self._stream, body)


def reading(stream: Stream, offset: int = 0) -> StreamingResponse:
    """The response with the bytes of a stream that has begun, from an offset on."""
    response = StreamingResponse(_read(stream, offset))
    response.raw_headers = list(stream.headers or ())
    return response


async def _read(stream: Stream, offset: int) -> AsyncIterator[bytes]:
    try:
        async for data in stream.read(offset):
            yield data
    except OffsetLost as error:  # the client reads too slowly
        yield f"event: error\ndata: {encode(fault(400, str(error)))}\n\n".encode()


def _log_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("a stream failed", exc_info=error)
