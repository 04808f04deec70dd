"""ASGI middleware: errors in the form of the API that a client speaks.

Every layer writes errors as an ErrorResponse. The form of a surface replaces its body on the way to
the client. The middleware looks at the path when the response begins: other middleware may have
removed a prefix from it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from starlette.datastructures import MutableHeaders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FIRST_ERROR = 400


class ErrorForm(Protocol):
    """The form of errors of a surface."""

    def applies_to(self, scope: Scope) -> bool:
        """Whether a request is to this surface, or from a client of it."""

    def converted(self, body: dict[str, Any], status: int) -> dict[str, Any]:
        """The body of an error with a status; `body` is an ErrorResponse."""

    def add_headers(self, headers: MutableHeaders) -> None:
        """Add the headers of every response of the surface."""


class ErrorForms:
    """Give errors the first form that applies to their request."""

    def __init__(self, app: ASGIApp, forms: Sequence[ErrorForm]) -> None:
        self._app = app
        self._forms = forms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        form: ErrorForm | None = None
        start: Message = {}
        body = b""

        async def send_converted(message: Message) -> None:
            nonlocal form, start, body
            if message["type"] == "http.response.start":
                form = next((form for form in self._forms if form.applies_to(scope)), None)
                if form is not None:
                    headers = MutableHeaders(scope=message)
                    form.add_headers(headers)
                    # A rejected preflight request is text.
                    is_json = headers.get("Content-Type") == "application/json"
                    if message["status"] >= _FIRST_ERROR and is_json:
                        start = message  # sent with the length of the converted body
                        return
            if form is None or not start:
                await send(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                converted = converted_bytes(form, body, start["status"])
                MutableHeaders(scope=start)["Content-Length"] = str(len(converted))
                await send(start)
                await send({"type": "http.response.body", "body": converted})

        await self._app(scope, receive, send_converted)


def converted_bytes(form: ErrorForm, body: bytes, status: int) -> bytes:
    """The body of an error response, converted unless it has another form, such as /health's."""
    parsed = json.loads(body)
    is_error = isinstance(parsed, dict) and isinstance(parsed.get("error"), dict)
    return json.dumps(form.converted(parsed, status)).encode() if is_error else body
