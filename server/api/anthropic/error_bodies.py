"""Errors in the form of Anthropic's API.

{"type": "error", "error": {"type": "invalid_request_error", "message": "..."},
 "request_id": "..."}
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field
from starlette.datastructures import Headers, MutableHeaders

from hearthd.server.api.http_errors import describe, encode

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PATHS = "/v1/messages"
_VERSION = "anthropic-version"  # the header that every client of Anthropic's API sends
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    501: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class AnthropicErrorDetail(BaseModel):
    """The reason why a request was rejected or failed."""

    type: str = Field(description="The class of the error, such as invalid_request_error.")
    message: str = Field(description="The reason, in a sentence.")


class AnthropicErrorResponse(BaseModel):
    """The body of every error."""

    type: Literal["error"]
    error: AnthropicErrorDetail
    request_id: str | None = Field(description="The id of the request.")


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "model": AnthropicErrorResponse,
        "description": "The request is invalid or not allowed.",
    },
    "5XX": {
        "model": AnthropicErrorResponse,
        "description": "The server failed or is not available.",
    },
}


def stream_error(error: BaseException) -> str:
    """The data of a stream's event for an error."""
    body = json.loads(encode(describe(error)))
    code = body["error"]["code"]
    return _converted(body, code if isinstance(code, int) else 400)


def _converted(body: dict[str, Any], status: int) -> str:
    """The JSON of an error with a status; `body` is an ErrorResponse."""
    error = body["error"]
    converted = {
        "type": "error",
        "error": {
            "type": _TYPES.get(status, "invalid_request_error"),
            "message": error["message"],
        },
        "request_id": error.get("request_id"),
    }
    return json.dumps(converted)


def converted_bytes(body: bytes, status: int) -> bytes:
    """The body of an error response, converted unless it has another form, such as /health's."""
    parsed = json.loads(body)
    is_error = isinstance(parsed, dict) and isinstance(parsed.get("error"), dict)
    return _converted(parsed, status).encode() if is_error else body


def _is_anthropics(scope: Scope) -> bool:
    """Whether a request is to a route of Anthropic's, or from a client of its API."""
    return scope["type"] == "http" and (
        scope["path"].startswith(_PATHS) or _VERSION in Headers(scope=scope)
    )


class AnthropicErrors:
    """ASGI middleware: errors in Anthropic's form, and its request-id header.

    They are for its routes, and for its clients on every route, such as /v1/models.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if not _is_anthropics(scope):
            await self._app(scope, receive, send)
            return
        start: Message = {}
        body = b""

        async def send_converted(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["request-id"] = headers.get("X-Request-Id", "")
                is_json = headers.get("Content-Type") == "application/json"
                if message["status"] >= 400 and is_json:  # a rejected preflight request is text
                    start = message  # sent with the length of the converted body
                    return
            if not start:
                await send(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                converted = converted_bytes(body, start["status"])
                MutableHeaders(scope=start)["Content-Length"] = str(len(converted))
                await send(start)
                await send({"type": "http.response.body", "body": converted})

        await self._app(scope, receive, send_converted)
