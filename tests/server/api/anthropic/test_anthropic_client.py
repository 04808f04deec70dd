"""/v1/messages by the real `anthropic` client, on a fake model."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.app import Guards
from tests.patience import PATIENCE
from tests.server import fakes, templates
from tests.server.api.anthropic.client_package import package
from tests.server.openai_servers import chatty, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.server.services.language_service import LanguageService

KEY = "a long enough key"
HELLO: list[Any] = [{"role": "user", "content": "the dog"}]
TOOLS: list[Any] = [{"name": "f", "description": "d", "input_schema": {"type": "object"}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@contextlib.contextmanager
def client_of(service: LanguageService, key: str = KEY) -> Iterator[Any]:
    """The client of a service that requires KEY, as long as the block runs."""
    with (
        fakes.running(service, guards=Guards(api_keys=(KEY,))) as plain,
        package().Anthropic(
            base_url=str(plain.base_url),
            api_key=key,
            max_retries=0,
            timeout=PATIENCE,
            default_headers={"Connection": "close"},
        ) as client,
    ):
        yield client


def test_an_answer() -> None:
    with client_of(scripted("the dog jumps", template=templates.CHATML)) as client:
        message = client.messages.create(model="any", max_tokens=50, messages=HELLO, system="x")
        assert [block.type for block in message.content] == ["text"]
        assert message.content[0].text == "the dog jumps"
        assert message.stop_reason == "end_turn"
        assert message._request_id
        count = client.messages.count_tokens(model="any", messages=HELLO, system="x")
        assert count.input_tokens == message.usage.input_tokens


def test_a_stream_accumulates_to_the_answer() -> None:
    asked: dict[str, Any] = {"model": "any", "max_tokens": 500, "messages": HELLO, "tools": TOOLS}
    with client_of(scripted(f"I look.\n{CALL}\n{CALL}")) as client:
        with client.messages.stream(**asked) as stream:
            text = "".join(stream.text_stream)
            streamed = stream.get_final_message()
        whole = client.messages.create(**asked)
    assert text == "I look."
    one, other = (m.model_dump(exclude={"id", "usage"}) for m in (streamed, whole))
    for message in (one, other):
        for block in message["content"]:
            block.pop("id", None)
            block.pop("parsed_output", None)
    assert one["content"] == other["content"]
    assert [block["input"] for block in one["content"][1:]] == [{"a": 1}] * 2
    assert (one["stop_reason"], streamed.usage.output_tokens) == (
        "tool_use",
        whole.usage.output_tokens,
    )


def test_a_tool_result_is_answered() -> None:
    with client_of(scripted("It is 42.")) as client:
        messages: list[Any] = [
            *HELLO,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "42"}],
            },
        ]
        answer = client.messages.create(model="any", max_tokens=50, messages=messages, tools=TOOLS)
        assert answer.content[0].text == "It is 42."


def test_thinking() -> None:
    with client_of(
        scripted("<think>\nthe fox\n</think>\n\nthe dog", template=templates.THINKING)
    ) as client:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        with client.messages.stream(
            model="any", max_tokens=2000, messages=HELLO, thinking=thinking
        ) as stream:
            message = stream.get_final_message()
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert message.content[0].thinking == "the fox"


def test_errors_become_the_clients_exceptions() -> None:
    with client_of(chatty()) as client:
        with pytest.raises(package().BadRequestError, match="messages: got"):
            client.messages.create(model="any", max_tokens=5, messages=[])
        long = [{"role": "user", "content": "the dog " * 300}]
        with pytest.raises(package().BadRequestError, match="exceeds the available context"):
            client.messages.create(model="any", max_tokens=5, messages=long)
    other = client_of(chatty(), key="another long key")
    with other as client, pytest.raises(package().AuthenticationError):
        client.messages.create(model="any", max_tokens=5, messages=HELLO)
