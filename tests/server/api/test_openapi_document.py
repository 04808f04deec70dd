"""The OpenAPI document explains every route and every field, and holds together."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hearthd.server.app import create_app
from tests.server import encoders, fakes, functions
from tests.server.openai_servers import LIBRARY
from tests.server.speech import speech_services
from tests.server.speech.listeners import ScriptedListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

    from hearthd.server.services.service import Service

SERVICES: dict[str, Callable[[], Service]] = {
    "language": lambda: fakes.fake_service(LIBRARY),
    "arrays": functions.service,
    "encoder": lambda: encoders.service(scores=True),
    "speech": lambda: speech_services.service(ScriptedListener([])),
}
both = pytest.mark.parametrize("name", SERVICES)


@cache
def document(name: str) -> dict[str, Any]:
    app: FastAPI = create_app(fakes.pool(SERVICES[name]()))
    return app.openapi()


def operations(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document(name)["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


@both
def test_every_route_has_a_tag_a_summary_and_a_description(name: str) -> None:
    known = {tag["name"] for tag in document(name)["tags"]}
    for route, operation in operations(name):
        assert set(operation["tags"]) <= known, route
        assert re.match(
            r"[A-Z][a-z]+ (a|the|texts|prompts|metrics|tokens|whether)", operation["summary"]
        )
        assert operation["description"].endswith("."), route


@both
def test_every_field_is_described(name: str) -> None:
    """A constant explains itself, and a field with a schema of its own has that schema's text."""
    undescribed = [
        f"{schema_name}.{field}"
        for schema_name, schema in document(name)["components"]["schemas"].items()
        for field, description in schema.get("properties", {}).items()
        if not {"description", "const", "$ref"} & set(description)
        and (field, description.get("type")) != ("type", "string")
    ]
    assert not undescribed
    for schema_name, schema in document(name)["components"]["schemas"].items():
        assert schema.get("description"), schema_name


@both
def test_every_reference_has_a_schema_with_a_short_name(name: str) -> None:
    schemas = document(name)["components"]["schemas"]
    references = re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document(name)))
    assert set(references) <= set(schemas)
    assert all(re.fullmatch(r"[A-Za-z]+", schema) for schema in schemas)


def test_events_of_streams_have_schemas() -> None:
    assert {"StreamEvent", "ChatChunk", "ResponseEvent"} <= set(
        document("language")["components"]["schemas"]
    )


def test_defaults_and_ranges_of_sampling_are_in_the_document() -> None:
    fields = document("language")["components"]["schemas"]["ChatRequest"]["properties"]
    assert fields["top_p"]["default"] == 0.95
    assert (fields["top_p"]["minimum"], fields["top_p"]["maximum"]) == (0, 1)
    assert fields["samplers"]["type"] == "array"
    assert "xtc" in fields["samplers"]["items"]["enum"]


def test_the_document_is_created_once_and_outside_of_the_event_loop() -> None:
    app = create_app(fakes.pool(SERVICES["language"]()))
    threads: list[threading.Thread] = []
    loops: list[threading.Thread] = []
    create = app.openapi

    def openapi() -> dict[str, Any]:
        threads.append(threading.current_thread())
        return create()

    app.openapi = openapi  # type: ignore[method-assign]

    async def ask() -> list[httpx.Response]:
        loops.append(threading.current_thread())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await asyncio.gather(*(client.get("/openapi.json") for _ in range(3)))

    responses = asyncio.run(ask())
    assert [response.json() for response in responses] == [document("language")] * 3
    [thread] = threads
    assert thread not in loops
