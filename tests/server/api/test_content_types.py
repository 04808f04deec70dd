"""JSON of any content type, unless a web page of another origin may have sent it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.server import fakes
from tests.server.api.test_long_prompts import bodies
from tests.server.openai_servers import chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty()) as client:
        yield client


@pytest.mark.parametrize("path", [*sorted({*bodies("")} - {"/infill"}), "/api/chat", "/tokenize"])
def test_a_body_needs_no_type_unless_a_web_page_sends_it(client: httpx.Client, path: str) -> None:
    fields = {"/api/chat": {"messages": [], "stream": False}, "/tokenize": {"content": "the dog"}}
    body = json.dumps((bodies("the dog") | fields)[path])
    for typed in ({}, {"Content-Type": "application/x-www-form-urlencoded"}):
        sent = client.post(path, content=body, headers=typed)
        assert sent.status_code == 200, sent.text
        page = {**typed, "Origin": "https://a.example"}
        assert client.post(path, content=body, headers=page).status_code == 400
    for page in ({"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        headers = {"Content-Type": "text/plain", **page}
        assert client.post(path, content=body, headers=headers).status_code == 400
