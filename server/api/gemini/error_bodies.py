"""Errors in the form of Gemini's API.

{"error": {"code": 400, "message": "...", "status": "INVALID_ARGUMENT"}}
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from typing_extensions import override

from hearthd.server.api.http_errors import describe, encode, status_of
from hearthd.server.api.middleware.api_keys import GOOGLE_HEADER
from hearthd.server.api.middleware.error_forms import ErrorForm

if TYPE_CHECKING:
    from starlette.datastructures import MutableHeaders
    from starlette.types import Scope

_PATHS = "/v1beta/"
_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    507: "RESOURCE_EXHAUSTED",
}


class GeminiErrorDetail(BaseModel):
    """The reason why a request was rejected or failed."""

    code: int = Field(description="The HTTP status.")
    message: str = Field(description="The reason, in a sentence.")
    status: str = Field(description="Google's word for the status, such as INVALID_ARGUMENT.")


class GeminiErrorResponse(BaseModel):
    """The body of every error."""

    error: GeminiErrorDetail


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": GeminiErrorResponse, "description": "The request is invalid or not allowed."},
    "5XX": {
        "model": GeminiErrorResponse,
        "description": "The server failed or is not available.",
    },
}


def stream_error(error: BaseException) -> str:
    """The error in a stream."""
    body = describe(error)
    return json.dumps(GeminiErrors().converted(json.loads(encode(body)), status_of(body)))


class GeminiErrors(ErrorForm):
    """Errors of Gemini's routes, and for its clients of every route, in Gemini's form."""

    @override
    def applies_to(self, scope: Scope) -> bool:
        return scope["path"].startswith(_PATHS) or GOOGLE_HEADER in Headers(scope=scope)

    @override
    def converted(self, body: dict[str, Any], status: int) -> dict[str, Any]:
        word = _STATUSES.get(status, "INVALID_ARGUMENT")
        return {"error": {"code": status, "message": body["error"]["message"], "status": word}}

    @override
    def add_headers(self, headers: MutableHeaders) -> None:
        """Gemini's API has none."""
