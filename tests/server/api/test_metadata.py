"""Metadata of requests has OpenAI's limits, https://platform.openai.com/docs/api-reference."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.server import fakes
from tests.server.templates import CHATML, CHATML_SPECIAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

MESSAGES = [{"role": "user", "content": "the dog"}]
RETURNED: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "the dog", "max_output_tokens": 1},
    "/v1/conversations": {},
}
IGNORED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 1},
}
LARGEST = {f"{number:064}": "v" * 512 for number in range(16)}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    library = fakes.gemma_like(special=CHATML_SPECIAL)
    with fakes.running(fakes.fake_service(library, template=CHATML)) as client:
        yield client


def message(client: httpx.Client, path: str, metadata: object) -> str:
    """The error, or nothing."""
    body = {**RETURNED, **IGNORED}[path]
    data = json.dumps({**body, "metadata": metadata})
    response = client.post(path, content=data, headers={"Content-Type": "application/json"})
    if response.status_code == 200:
        assert path in IGNORED or response.json()["metadata"] == metadata
        return ""
    assert response.status_code == 400
    return str(response.json()["error"]["message"])


@pytest.mark.parametrize("path", [*RETURNED, *IGNORED])
def test_metadata_has_at_most_sixteen_members(client: httpx.Client, path: str) -> None:
    assert message(client, path, LARGEST) == ""
    for count in (17, 2000):
        refused = message(client, path, dict.fromkeys(map(str, range(count)), "v"))
        assert refused.startswith("metadata: got ")
        assert refused.endswith("at most 16 members")


@pytest.mark.parametrize("path", RETURNED)
def test_keys_and_values_of_metadata_are_short_texts(client: httpx.Client, path: str) -> None:
    assert "expected at most 64 characters" in message(client, path, {"k" * 65: "v"})
    assert "expected at most 512 characters" in message(client, path, {"k": "v" * 513})
    assert "expected a valid string" in message(client, path, {"k": 1})
    assert "expected text without lone surrogates" in message(client, path, {"\ud800": "v"})
