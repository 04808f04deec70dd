"""A middleware before the real application: notes what is asked, and refuses what it is told to."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class Refusal:
    """An answer instead of the application's, for as long as `until` is not set."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    until: threading.Event = field(default_factory=threading.Event)


@dataclass
class Doorman:
    """Requests pass, but for those to the paths that are refused."""

    refused: dict[str, Refusal] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def before(self, app: ASGIApp) -> ASGIApp:
        """The application with the doorman before it."""

        async def pass_or_refuse(scope: Scope, receive: Receive, send: Send) -> None:
            refusal = self._refusal(scope) if scope["type"] == "http" else None
            if refusal:
                error = {"error": {"code": refusal.status, "message": refusal.message}}
                answer = JSONResponse(error, refusal.status, refusal.headers)
                await answer(scope, receive, send)
                return
            await app(scope, self._noting(receive), send)

        return pass_or_refuse

    def _refusal(self, scope: Scope) -> Refusal | None:
        pending = self.refused.get(scope["path"])
        return None if pending is None or pending.until.is_set() else pending

    def _noting(self, receive: Receive) -> Receive:
        async def note() -> Message:
            message = await receive()
            if message.get("body"):
                self.bodies.append(json.loads(message["body"]))
            return message

        return note
