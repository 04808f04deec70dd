"""A conversation of the text layer, and its form for chat templates."""

from __future__ import annotations

import pytest

from hearthd.text.conversation import (
    Conversation,
    EarlierCall,
    Media,
    Message,
    ToolResult,
)
from hearthd.text.errors import InvalidRequest
from hearthd.text.tool_calls.tools import Tool, ToolChoice

QUESTION = Message(role="user", parts=["Weather?", "In Rome."], name="Ann")
CALL = EarlierCall(id="c", name="weather", arguments={"city": "Rome"})
CALLING = Message(role="assistant", reasoning="hm", calls=[CALL])
RESULT = ToolResult(call_id="c", parts=["sun"], field="messages[2].tool_call_id")


def test_templates_get_one_text_per_message_and_the_name_of_a_results_tool() -> None:
    function = {"name": "weather", "arguments": {"city": "Rome"}}
    assert Conversation(messages=[QUESTION, CALLING, RESULT]).as_template() == [
        {"role": "user", "content": "Weather?\nIn Rome.", "name": "Ann"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "sun", "name": "weather", "tool_call_id": "c"},
    ]


def test_a_result_follows_its_call() -> None:
    with pytest.raises(InvalidRequest, match=r"messages\[2\].tool_call_id: got .*an earlier"):
        Conversation(messages=[QUESTION, RESULT, CALLING]).as_template()


@pytest.mark.parametrize("kind", ["image", "audio", "file"])
def test_only_text_is_read(kind: str) -> None:
    media = Media(kind=kind, field="input[0].content[1]")  # type: ignore[arg-type]
    for message in (
        Message(role="user", parts=["a", media]),
        ToolResult(call_id="c", parts=[media], field="x"),
    ):
        with pytest.raises(InvalidRequest, match="cannot read images") as caught:
            Conversation(messages=[CALLING, message]).as_template()
        assert (caught.value.field, caught.value.got) == ("input[0].content[1]", kind)


def test_a_conversation_has_a_message() -> None:
    with pytest.raises(InvalidRequest, match=r"input: got .*at least one message"):
        Conversation(messages=[], field="input").as_template()


def test_only_a_text_from_the_model_can_be_continued() -> None:
    answer = Message(role="assistant", parts=["Once"])
    last: dict[str, list[Message | ToolResult]] = {
        "text": [QUESTION, answer],
        "question": [answer, QUESTION],
        "call": [CALLING],
        "result": [CALLING, RESULT],
        "nothing": [],
    }
    assert [
        name for name, messages in last.items() if Conversation(messages=messages).can_be_continued
    ] == ["text"]


def test_a_choice_names_tools_of_the_request() -> None:
    tools = [Tool(name="weather"), Tool(name="time")]
    chosen = ToolChoice.among(tools, "required", names=["time"], parallel=False)
    assert chosen == ToolChoice(mode="required", allowed=frozenset({"time"}), parallel=False)
    assert ToolChoice.among(tools, "auto", parallel=True) == ToolChoice()
    with pytest.raises(InvalidRequest, match='got "news", expected the name of a tool: time, w'):
        ToolChoice.among(tools, "auto", names=["time", "news"], parallel=True)
    with pytest.raises(InvalidRequest, match="auto or none without tools"):
        ToolChoice.among([], "required", parallel=True)
