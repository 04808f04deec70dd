"""/v1/messages by the real `anthropic` client, on a fake model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hearthd.server.app import Guards
from tests.server import templates
from tests.server.api.anthropic.client_package import client_of, package
from tests.server.openai_servers import chatty, scripted
from tools.clients import scripted_model

KEY = "a long enough key"
GUARDS = Guards(api_keys=(KEY,))
HELLO: list[Any] = [{"role": "user", "content": "the dog"}]
TOOLS: list[Any] = [{"name": "f", "description": "d", "input_schema": {"type": "object"}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def test_an_answer() -> None:
    service = scripted("the dog jumps", template=templates.CHATML)
    with client_of(service, key=KEY, guards=GUARDS) as client:
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
    other = client_of(chatty(), key="another long key", guards=GUARDS)
    with other as client, pytest.raises(package().AuthenticationError):
        client.messages.create(model="any", max_tokens=5, messages=HELLO)


def test_the_tool_runner_goes_on_without_a_thread() -> None:
    results = []

    def read(file: str) -> str:
        """Read a file."""
        results.append(file)
        return "It is blue."

    call = json.dumps({"name": "read", "arguments": {"file": "a.txt"}})
    asked = {"role": "user", "content": f"say: {call}\nsay: {call}"}
    with client_of(scripted_model.service()) as client:
        runner = client.beta.messages.tool_runner(
            model="any", max_tokens=500, messages=[asked], tools=[package().beta_tool(read)]
        )
        last = runner.until_done()
    assert results == ["a.txt", "a.txt"]
    assert last.content[-1].text == "It is blue."
