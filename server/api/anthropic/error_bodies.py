"""Errors in the form of Anthropic's API.

{"type": "error", "error": {"type": "invalid_request_error", "message": "..."},
 "request_id": "..."}
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from typing_extensions import override

from hearthd.server.api.http_errors import describe, encode, status_of
from hearthd.server.api.middleware.error_forms import ErrorForm

if TYPE_CHECKING:
    from starlette.datastructures import MutableHeaders
    from starlette.types import Scope

_PATHS = "/v1/messages"
VERSION_HEADER = "anthropic-version"  # the header that every client of Anthropic's API sends
# Anthropic's packages answer thread_not_found with the whole conversation.
THREAD_FIELD = "thread.previous_message_id"
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
    507: "api_error",
}


class AnthropicErrorDetail(BaseModel):
    """The reason why a request was rejected or failed."""

    type: str = Field(description="The class of the error, such as invalid_request_error.")
    message: str = Field(description="The reason, in a sentence.")
    details: dict[str, str] = Field(
        default_factory=dict, description="For a thread: `error_code` is thread_not_found."
    )


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
    body = describe(error)
    return json.dumps(AnthropicErrors().converted(json.loads(encode(body)), status_of(body)))


class AnthropicErrors(ErrorForm):
    """Errors in Anthropic's form, and its request-id header.

    They are for its routes, and for its clients on every route, such as /v1/models.
    """

    @override
    def applies_to(self, scope: Scope) -> bool:
        return scope["path"].startswith(_PATHS) or VERSION_HEADER in Headers(scope=scope)

    @override
    def converted(self, body: dict[str, Any], status: int) -> dict[str, Any]:
        error = body["error"]
        detail = {
            "type": _TYPES.get(status, "invalid_request_error"),
            "message": error["message"],
        }
        if error.get("param") == THREAD_FIELD:
            detail["details"] = {"error_code": "thread_not_found"}
        return {"type": "error", "error": detail, "request_id": error.get("request_id")}

    @override
    def add_headers(self, headers: MutableHeaders) -> None:
        headers["request-id"] = headers.get("X-Request-Id", "")
