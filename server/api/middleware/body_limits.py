"""How much of requests' bodies there may be, of one and of all at once. An ASGI middleware.

A body that says its length is refused before it is read, one in chunks as soon as it is too long.
What is made of a body takes memory by its values: `[[],[]...` takes 35 bytes for each of its own.
So a body counts by both until its request is answered, against the `room` that there is for all.

It knows no route: any `, : [ {` counts as a value, in a text too.
"""

from __future__ import annotations

import gc
import math
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from server.api.http_errors import fault, respond

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CLOSE = {"Connection": "close"}  # else the rest of the body would have to be read
_LATER = {"Retry-After": "1"}
# The body itself, joined, as text with wide characters, and the texts in it.
_PER_BYTE = 8
_PER_VALUE = 40
_LARGE = 1_000_000


class BodyLimit:
    """Answers 413 to a body of more than `most` bytes, 503 to one that is too much just now.

    `room` are the bytes that all bodies may take; None does not count them.
    """

    def __init__(self, app: ASGIApp, most: int, room: int | None) -> None:
        self._app = app
        self._most = most
        self._room = math.inf if room is None else room
        self._taken = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The HTTP parser has refused a length that is no number.
        if int(Headers(scope=scope).get("Content-Length", "0")) > self._most:
            await respond(fault(413, self._message), _CLOSE)(scope, receive, send)
            return
        read = taken = 0

        async def receive_some() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(413, self._message, _CLOSE)
            return message

        async def receive_within_limit() -> Message:
            nonlocal taken
            message = await receive_some()
            size = _size(message.get("body", b""))
            taken += size
            self._taken += size
            if self._taken > self._room:
                alone = taken
                while message.get("more_body"):  # to nowhere: else the client would be cut off
                    message = await receive_some()
                    alone += _size(message.get("body", b""))
                if alone > self._room:
                    raise HTTPException(413, "the body is too large: it has too many values")
                raise HTTPException(503, "too much is asked at once: try again", _LATER)
            return message

        try:
            await self._app(scope, receive_within_limit, send)
        finally:
            self._taken -= taken
            if taken > _LARGE:
                gc.collect()  # errors hold what they are about in circles

    @property
    def _message(self) -> str:
        return f"the body is too large: wanted at most {self._most} bytes"


def _size(part: bytes) -> int:
    """What a part of a body counts."""
    return _PER_BYTE * len(part) + _PER_VALUE * sum(map(part.count, (b",", b":", b"[", b"{")))
