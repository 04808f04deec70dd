"""Requests to Ollama's routes, without a client library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hearthd.server.api.ndjson import NDJSON

if TYPE_CHECKING:
    import httpx

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "the dog"}]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
    }
]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def whole(client: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    """The answer to a request without a stream."""
    response = client.post(path, json={"stream": False, **fields})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def lines(client: httpx.Client, path: str, **fields: Any) -> list[dict[str, Any]]:
    """The lines of a stream, which is the default."""
    response = client.post(path, json=fields)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == NDJSON
    return [json.loads(line) for line in response.text.splitlines()]


def refusal(client: httpx.Client, path: str, **fields: Any) -> tuple[int, str]:
    """The status and the error of a request."""
    response = client.post(path, json=fields)
    (reason,) = response.json().values()
    assert set(response.json()) == {"error"}
    assert isinstance(reason, str)
    return response.status_code, reason
