"""Errors in the form of Ollama's API: {"error": "the reason"}."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field
from typing_extensions import override

from hearthd.server.api.http_errors import describe
from hearthd.server.api.middleware.error_forms import ErrorForm

if TYPE_CHECKING:
    from starlette.datastructures import MutableHeaders
    from starlette.types import Scope

_PATHS = "/api/"
_LM_STUDIO = "/api/v0/"


class OllamaErrorResponse(BaseModel):
    """The body of every error."""

    error: str = Field(description="The reason, in a sentence.")


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": OllamaErrorResponse, "description": "The request is invalid or not allowed."},
    "5XX": {
        "model": OllamaErrorResponse,
        "description": "The server failed or is not available.",
    },
}


def stream_error(error: BaseException) -> str:
    """The last line of a stream that failed."""
    return json.dumps({"error": describe(error).error.message})


class OllamaErrors(ErrorForm):
    """Errors of the routes below /api/ in Ollama's form."""

    @override
    def applies_to(self, scope: Scope) -> bool:
        path = scope["path"]
        return path.startswith(_PATHS) and not path.startswith(_LM_STUDIO)

    @override
    def converted(self, body: dict[str, Any], status: int) -> dict[str, Any]:
        return {"error": body["error"]["message"]}

    @override
    def add_headers(self, headers: MutableHeaders) -> None:
        """Ollama has none."""
