"""Documents, search results and the tools of clients in Anthropic's form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.api.anthropic.client_tools import CLIENT_TOOLS
from tests.server import fakes
from tests.server.api.anthropic.test_anthropic import HELLO, client, free
from tests.server.openai_servers import TOKENIZER

if TYPE_CHECKING:
    import httpx

__all__ = ["client"]  # a fixture

TEXT = {"type": "text", "media_type": "text/plain", "data": "The sky is green."}
DOCUMENT = {"type": "document", "source": TEXT, "title": "Facts", "citations": {"enabled": False}}
PARTS = {
    "type": "content",
    "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
}
RESULT = {
    "type": "search_result",
    "source": "https://example.com",
    "title": "Sky",
    "content": [{"type": "text", "text": "It is green."}],
}


def counted(client: httpx.Client, content: Any) -> int:
    body = {"messages": [{"role": "user", "content": content}]}
    response = client.post("/v1/messages/count_tokens", json=body)
    assert response.status_code == 200, response.text
    assert "warning" not in response.headers
    tokens: int = response.json()["input_tokens"]
    return tokens


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (DOCUMENT, "<document>\n<title>Facts</title>\nThe sky is green.\n</document>"),
        (
            {"type": "document", "source": PARTS, "context": "of a test"},
            "<document>\n<context>of a test</context>\nOne.\nTwo.\n</document>",
        ),
        (
            RESULT,
            "<search_result>\n<source>https://example.com</source>\n<title>Sky</title>\n"
            "It is green.\n</search_result>",
        ),
    ],
)
def test_a_document_is_read_as_text(client: httpx.Client, block: Any, text: str) -> None:
    question = {"type": "text", "text": "the dog"}
    as_text = {"type": "text", "text": text}
    assert counted(client, [block, question]) == counted(client, [as_text, question])
    assert counted(client, [block]) > len(TOKENIZER.encode("the dog"))


def test_a_tool_can_return_documents(client: httpx.Client) -> None:
    def length(content: Any) -> int:
        call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "c", "content": content}
        messages = [*HELLO, {"role": "assistant", "content": [call]}]
        body = {"messages": [*messages, {"role": "user", "content": [result]}]}
        response = client.post("/v1/messages/count_tokens", json=body)
        assert response.status_code == 200, response.text
        tokens: int = response.json()["input_tokens"]
        return tokens

    assert length([RESULT, DOCUMENT]) > length([RESULT]) > length([])


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({"type": "document", "source": {"type": "base64", "data": "eA=="}}, "messages[0].content"),
        ({"type": "document", "source": {"type": "url", "url": "x"}}, "messages[0].content"),
        ({"type": "document"}, "messages[0].content"),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}},
            "messages[0].content[0].source",
        ),
        ({**DOCUMENT, "citations": {"enabled": True}}, "messages[0].content[0].citations.enabled"),
        ({**RESULT, "content": "x"}, "messages[0].content[0].content"),
        ({"type": "document", "source": {"type": "text"}}, "messages[0].content[0].source.data"),
    ],
)
def test_a_document_without_a_text_is_refused(
    client: httpx.Client, block: Any, problem: str
) -> None:
    refused = client.post(
        "/v1/messages", json={"max_tokens": 4, "messages": [{"role": "user", "content": [block]}]}
    )
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith(problem)


def test_a_tool_of_the_client_gets_its_schema() -> None:
    tool = {"type": "bash_20250124", "name": "bash", "cache_control": {"type": "ephemeral"}}
    fields: dict[str, Any] = {"tools": [tool], "tool_choice": {"type": "any"}, "max_tokens": 400}
    with fakes.running(free()) as client:
        response = client.post("/v1/messages", json={"messages": HELLO, "seed": 1, **fields})
    assert "warning" not in response.headers
    block = response.json()["content"][0]
    assert (block["type"], block["name"]) == ("tool_use", "bash")
    assert block["input"].keys() <= {"command", "restart"}


def test_the_schema_of_each_tool_of_the_client_can_be_enforced() -> None:
    with fakes.running(free()) as client:
        for kind in CLIENT_TOOLS:
            fields: dict[str, Any] = {"max_tokens": 4, "tool_choice": {"type": "any"}}
            body = {"messages": HELLO, "tools": [{"type": kind, "name": "the_tool"}], **fields}
            response = client.post("/v1/messages", json=body)
            assert response.status_code == 200, response.text
            assert "warning" not in response.headers
            refused = client.post("/v1/messages", json={**body, "tools": [{"type": kind}]})
            assert refused.json()["error"]["message"].startswith("tools[0].name")


def test_a_tool_that_the_server_would_run_is_left_out(client: httpx.Client) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    answer = client.post("/v1/messages", json={"max_tokens": 4, "messages": HELLO, "tools": tools})
    assert answer.status_code == 200
    assert "tools[0]" in answer.headers["warning"]


@pytest.mark.parametrize(
    "system",
    [
        [
            {
                "type": "text",
                "text": "x-anthropic-billing-header: cc_version=2.1.332.1c9; cch=a5145;",
            }
        ],
        [
            {
                "type": "text",
                "text": "x-anthropic-billing-header: cc_entrypoint=sdk-cli; cch=00000;\n",
            }
        ],
        "x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=a5145;",
    ],
)
def test_the_header_for_billing_is_no_part_of_the_prompt(client: httpx.Client, system: Any) -> None:
    """Its hash would change the start of each prompt of Claude Code."""

    def tokens(system: Any) -> int:
        body = {"messages": HELLO, "system": system}
        count: int = client.post("/v1/messages/count_tokens", json=body).json()["input_tokens"]
        return count

    text = "You are the dog; x=1;"
    assert tokens(system) == tokens("")
    following = f"{system}{text}" if isinstance(system, str) else [*system, text_block(text)]
    assert tokens(following) == tokens(text) > tokens("")
    assert tokens(f"{text} x-anthropic-billing-header: a=1;") > tokens(text)


def text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
