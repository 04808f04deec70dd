"""A middleware before the real application: it notes requests, and answers some of them itself."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Refusal:
    """An answer instead of the application's, for as long as `until` is not set."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    until: threading.Event = field(default_factory=threading.Event)

    def response(self) -> JSONResponse:
        """The response, in the form of the application's errors."""
        error = {"error": {"code": self.status, "message": self.message}}
        return JSONResponse(error, self.status, self.headers)


@dataclass
class Doorman:
    """Requests pass, except those to paths that are `refused` or have an answer in `answered`.

    The next response is cut after `cut_after` events, or parts without events, unless that is None.
    """

    refused: dict[str, Refusal] = field(default_factory=dict)
    answered: dict[str, Any] = field(default_factory=dict)
    cut_after: int | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def before(self, app: ASGIApp) -> ASGIApp:
        """The application with the doorman before it."""

        async def pass_or_refuse(scope: Scope, receive: Receive, send: Send) -> None:
            response = self._response(scope) if scope["type"] == "http" else None
            if response:
                await response(scope, receive, send)
                return
            await app(scope, self._noting(receive), self._cutting(scope, send))

        return pass_or_refuse

    def _response(self, scope: Scope) -> JSONResponse | None:
        path = scope["path"]
        self.paths.append(path)
        if path in self.answered:
            return JSONResponse(self.answered[path])
        pending = self.refused.get(path)
        return None if pending is None or pending.until.is_set() else pending.response()

    def _noting(self, receive: Receive) -> Receive:
        body = b""

        async def note() -> Message:
            nonlocal body
            message = await receive()
            body += message.get("body", b"")
            if body and message["type"] == "http.request" and not message.get("more_body"):
                self.bodies.append(json.loads(body))
                body = b""
            return message

        return note

    def _cutting(self, scope: Scope, send: Send) -> Send:
        left = self.cut_after if scope["type"] == "http" and scope["method"] == "POST" else None

        async def cut(message: Message) -> None:
            nonlocal left
            if left is not None and message["type"] == "http.response.body":
                # A loaded server sends several events as a part.
                events = message["body"].split(b"\n\n")
                left -= max(1, len(events) - 1)
                if left < 0:
                    # An end of a stream without its last event, as of a server that was killed.
                    body = b"".join(event + b"\n\n" for event in events[:-1][:left])
                    await send({"type": "http.response.body", "body": body, "more_body": False})
                    raise ConnectionAbortedError
            await send(message)

        return cut
