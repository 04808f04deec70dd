"""ASGI middleware: HEAD on every route that has GET (RFC 9110, section 9.3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """Answer HEAD as GET. The server leaves out the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            scope["method"] = "HEAD"  # for the server and the access log, which share this object
            await send(message)

        scope["method"] = "GET"
        await self._app(scope, receive, send_head)
