"""How large a request's body may be. An ASGI middleware.

A body that says its length is refused before it is read, one in chunks as soon as it is too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from server.api.errors import fault, respond

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CLOSE = {"Connection": "close"}  # else the rest of the body would have to be read


class BodyLimit:
    """Answers 413 to a body of more than `most` bytes."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The HTTP parser has refused a length that is no number.
        if int(Headers(scope=scope).get("Content-Length", "0")) > self._most:
            await respond(fault(413, self._message), _CLOSE)(scope, receive, send)
            return
        read = 0

        async def receive_within_limit() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(413, self._message, _CLOSE)
            return message

        await self._app(scope, receive_within_limit, send)

    @property
    def _message(self) -> str:
        return f"the body is too large: wanted at most {self._most} bytes"
