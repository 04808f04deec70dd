"""Requests to Gemini's routes, without a client library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.server import fakes, templates
from tests.server.openai_servers import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from hearthd.server.services.language_service import LanguageService

MODEL = "/v1beta/models/any"
HELLO: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "the dog"}]}]
DECLARATION = {"name": "f", "description": "d", "parameters": {"type": "OBJECT"}}
TOOLS: list[dict[str, Any]] = [{"functionDeclarations": [DECLARATION]}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def body_of(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A request with these fields, and this generationConfig."""
    return {"contents": HELLO, "generationConfig": {"maxOutputTokens": 8, **config}, **fields}


def answer(client: httpx.Client, fields: Mapping[str, Any] = {}, **config: Any) -> dict[str, Any]:
    """The whole answer to a request."""
    response = client.post(f"{MODEL}:generateContent", json=body_of(config, fields))
    assert response.status_code == 200, response.text
    read: dict[str, Any] = response.json()
    return read


def events(
    client: httpx.Client, fields: Mapping[str, Any] = {}, **config: Any
) -> list[dict[str, Any]]:
    """The server-sent events of a stream."""
    path = f"{MODEL}:streamGenerateContent?alt=sse"
    response = client.post(path, json=body_of(config, fields))
    assert response.status_code == 200, response.text
    blocks = response.text.strip().split("\n\n")
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


def parts(event: dict[str, Any], index: int = 0) -> list[dict[str, Any]]:
    """The parts of an answer."""
    content = event["candidates"][index]["content"]
    assert content["role"] == "model"
    read: list[dict[str, Any]] = content["parts"]
    return read


def text(event: dict[str, Any]) -> str:
    """The text of an answer that has nothing else."""
    return "".join(part["text"] for part in parts(event))


def refusal(client: httpx.Client, method: str, **fields: Any) -> str:
    """The reason why a request is a 400."""
    response = client.post(f"{MODEL}:{method}", json=fields)
    error = response.json()["error"]
    assert response.status_code == error["code"] == 400, response.text
    assert (set(error), error["status"]) == ({"code", "message", "status"}, "INVALID_ARGUMENT")
    message: str = error["message"]
    return message


def free() -> LanguageService:
    """A service whose model says anything, and can end its answers."""
    script = fakes.Script(cue=(0, 0, 0, 0), answer=(), end=fakes.EOS)
    return fakes.fake_service(LIBRARY, template=templates.CHATML, context=1024, script=script)
