"""Tools with `defer_loading`, which the model sees where a result refers to them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.server import fakes
from tests.server.api.anthropic.test_anthropic import HELLO, TOOLS, client, free

if TYPE_CHECKING:
    import httpx

__all__ = ["client"]  # a fixture

SEARCH = {"name": "search", "input_schema": {"type": "object"}}
DEFERRED = {**TOOLS[0], "defer_loading": True}
REFERENCE = {"type": "tool_reference", "tool_name": "f"}
SERVER_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def found(*content: Any) -> list[Any]:
    """A conversation in which the tool `search` has returned `content`."""
    call = {"type": "tool_use", "id": "c", "name": "search", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": list(content)}
    return [
        *HELLO,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]


def tokens(client: httpx.Client, messages: list[Any], *tools: Any) -> int:
    body = {"messages": messages, "tools": list(tools)}
    response = client.post("/v1/messages/count_tokens", json=body)
    assert response.status_code == 200, response.text
    count: int = response.json()["input_tokens"]
    return count


def test_a_deferred_tool_is_not_in_the_list_of_tools(client: httpx.Client) -> None:
    assert tokens(client, HELLO, SEARCH, DEFERRED) == tokens(client, HELLO, SEARCH)
    assert tokens(client, HELLO, SEARCH, *TOOLS) > tokens(client, HELLO, SEARCH)


def test_a_reference_is_read_as_the_definition_of_its_tool(client: httpx.Client) -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    text = {"type": "text", "text": f"<function>{json.dumps(function)}</function>"}
    other = {"type": "text", "text": "the dog"}
    read = tokens(client, found(REFERENCE, other), SEARCH, DEFERRED)
    assert read == tokens(client, found(text, other), SEARCH)


def test_a_second_reference_is_read_as_the_name_of_its_tool(client: httpx.Client) -> None:
    """A definition of 1 MB and 60,000 references to it would be 60 GB."""
    name = {"type": "text", "text": '<function>{"name": "f"}</function>'}
    read = tokens(client, found(REFERENCE, REFERENCE, REFERENCE), SEARCH, DEFERRED)
    assert read == tokens(client, found(REFERENCE, name, name), SEARCH, DEFERRED)


def test_a_tool_can_be_called_after_a_reference_to_it() -> None:
    choice = {"type": "tool", "name": "f"}
    body = {"max_tokens": 400, "seed": 1, "tools": [SEARCH, DEFERRED], "tool_choice": choice}
    with fakes.running(free()) as client:
        called = client.post("/v1/messages", json={**body, "messages": found(REFERENCE)})
        refused = client.post("/v1/messages", json={**body, "messages": HELLO})
    block = called.json()["content"][0]
    assert (block["type"], block["name"]) == ("tool_use", "f")
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("tool_choice")


def test_a_reference_to_no_tool_of_the_request_is_refused(client: httpx.Client) -> None:
    body = {"max_tokens": 4, "messages": found(REFERENCE), "tools": [SEARCH]}
    refused = client.post("/v1/messages", json=body)
    assert refused.status_code == 400
    said = refused.json()["error"]["message"]
    assert said.startswith('messages[2].content[0].content[0].tool_name: got "f"')


def test_no_tool_is_deferred_that_only_the_server_could_find(client: httpx.Client) -> None:
    listed = tokens(client, HELLO, SEARCH, *TOOLS)
    assert tokens(client, HELLO, SEARCH, DEFERRED, SERVER_SEARCH) == listed
