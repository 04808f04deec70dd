"""ASGI middleware: limit the size of one request body, and the memory of all bodies together.

A body with a Content-Length is rejected before it is read, a chunked one once it is too long.
Parsed JSON takes memory per byte and per value: `[[],[]...` takes 35 bytes for each byte sent. So a
body counts with both, until its request is answered, against a limit for all bodies. The middleware
does not parse: every `,`, `:`, `[` and `{` counts as a value, in strings too.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from server.api.http_errors import fault, respond

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CLOSE = {"Connection": "close"}  # otherwise the server would have to read the rest of the body
_RETRY = {"Retry-After": "1"}
# Memory per byte: the joined body, its text with wide characters, and the strings in it.
_BYTES_PER_BYTE = 8
_BYTES_PER_VALUE = 40
_LARGE = 1_000_000


class BodyLimit:
    """Answer 413 to a body of more than `max_bytes`, 503 when memory for bodies is full.

    `memory` is the estimated memory in bytes that all bodies may take.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, memory: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._memory = memory
        self._taken = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The HTTP parser has rejected a length that is not a number.
        if int(Headers(scope=scope).get("Content-Length", "0")) > self._max_bytes:
            await respond(fault(413, self._message), _CLOSE)(scope, receive, send)
            return
        read = taken = 0

        async def receive_some() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_bytes:
                raise HTTPException(413, self._message, _CLOSE)
            return message

        async def receive_within_limit() -> Message:
            nonlocal taken
            message = await receive_some()
            size = estimated_memory(message.get("body", b""))
            taken += size
            self._taken += size
            if self._taken > self._memory:
                total = taken
                while message.get("more_body"):  # read the rest, so that the client gets the answer
                    message = await receive_some()
                    total += estimated_memory(message.get("body", b""))
                if total > self._memory:
                    raise HTTPException(413, "body: too many values; send a smaller request")
                raise HTTPException(503, "request memory is full; retry later", _RETRY)
            return message

        try:
            await self._app(scope, receive_within_limit, send)
        finally:
            self._taken -= taken
            if taken > _LARGE:
                gc.collect()  # validation errors hold the body in reference cycles

    @property
    def _message(self) -> str:
        return f"body: too large: expected at most {self._max_bytes} bytes (--max-body-bytes)"


def estimated_memory(part: bytes) -> int:
    """The memory that a part of a JSON body takes once it is parsed, in bytes, as an estimate."""
    values = sum(map(part.count, (b",", b":", b"[", b"{")))
    return _BYTES_PER_BYTE * len(part) + _BYTES_PER_VALUE * values
