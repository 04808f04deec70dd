"""POST /generate to a server with a fake runtime: answers and streams as Python values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.server import fakes

if TYPE_CHECKING:
    import httpx

LIBRARY = fakes.gemma_like()
VOCAB = LIBRARY.get_vocab_size()
POISON = 300  # a token id that the fake runtime fails on


def answer(client: httpx.Client, **body: Any) -> dict[str, Any]:
    response = client.post("/generate", json={"prompt": "the dog", **body})
    assert response.status_code == 200, response.text
    data: dict[str, Any] = response.json()
    return data


def stream(client: httpx.Client, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream as (name, data)."""
    with client.stream(
        "POST", "/generate", json={"prompt": "the dog", "stream": True, **body}
    ) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        events = []
        for block in response.read().decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines())
            if fields:
                events.append((fields.get("event", "message"), json.loads(fields["data"])))
        return events
