"""The OpenAPI document: tags, and the schemas of streamed events, which FastAPI does not see."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi.responses import JSONResponse, Response
from pydantic.json_schema import models_json_schema

from hearthd.server.api.ndjson import NDJSON

if TYPE_CHECKING:
    from collections.abc import Collection

    from fastapi import FastAPI, Request
    from pydantic import BaseModel

SUMMARY = "A language model, or a program of functions on arrays, served on this device."
TAGS = [
    {"name": "OpenAI", "description": "Routes that are compatible with OpenAI's API."},
    {"name": "Generate", "description": "Generate text with llama-server's field names."},
    {"name": "Anthropic", "description": "Routes that are compatible with Anthropic's API."},
    {"name": "Ollama", "description": "Routes that are compatible with Ollama's API."},
    {"name": "Gemini", "description": "Routes that are compatible with Gemini's API."},
    {"name": "LM Studio", "description": "The list of models that LM Studio's API has."},
    {"name": "Mistral", "description": "The route of Mistral's API to fill in the middle."},
    {"name": "llama-server", "description": "Routes that are compatible with llama-server."},
    {"name": "Tokens", "description": "Tokenize text and render conversations."},
    {"name": "Rerank", "description": "Order documents by their relevance to a query."},
    {"name": "Arrays", "description": "Run functions on arrays."},
    {"name": "Server", "description": "State, metrics and operation of the server."},
]
PATH = "/openapi.json"
_SCHEMAS = "#/components/schemas/"


def streams(event: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """A route's streamed answer in the document; `event` is the schema of its events."""
    data = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": _SCHEMAS + event.__name__},
        "description": f"A {event.__name__} as JSON. After an error an ErrorResponse.",
    }
    schema = {
        "type": "object",
        "description": "A server-sent event.",
        "properties": {
            "event": {"type": "string", "description": "Name of the event; error after an error."},
            "data": data,
        },
    }
    return {200: {"content": {"text/event-stream": {"schema": schema}}}}


def json_lines(event: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """As `streams`, for an answer of JSON lines."""
    schema = {
        "type": "string",
        "description": f"Lines, each a {event.__name__} as JSON. After an error the last one is an "
        "OllamaErrorResponse.",
    }
    return {200: {"content": {NDJSON: {"schema": schema}}}}


def require_key(app: FastAPI) -> None:
    """Say in an application's document that requests need an API key."""
    without_key = app.openapi

    def openapi() -> dict[str, Any]:
        document = without_key()
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def add_events(app: FastAPI, events: Collection[type[BaseModel]]) -> None:
    """Add the schemas of streamed events to an application's document."""
    without_events = app.openapi

    def openapi() -> dict[str, Any]:
        document = without_events()
        _, definitions = models_json_schema(
            [(event, "serialization") for event in events], ref_template=_SCHEMAS + "{model}"
        )
        for name, schema in definitions.get("$defs", {}).items():
            document["components"]["schemas"].setdefault(name, schema)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def add_route(app: FastAPI) -> None:
    """Serve an application's document. It is created once, in a thread: that takes seconds."""
    creating = asyncio.Lock()
    create = cache(lambda: bytes(JSONResponse(app.openapi()).body))

    async def document(_: Request) -> Response:
        async with creating:
            return Response(await asyncio.to_thread(create), media_type=JSONResponse.media_type)

    app.add_route(PATH, document, include_in_schema=False)
