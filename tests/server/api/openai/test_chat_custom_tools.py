"""Custom tools on the chat route, by the real `openai` client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.server.openai_servers import client_of, scripted

TALK: list[Any] = [{"role": "user", "content": "the dog"}]
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"const": 1}}}}


def custom(**format_: Any) -> Any:
    """A custom tool whose input has this format."""
    tool = {"name": "apply_patch", "description": "Patch files.", **format_}
    return {"type": "custom", "custom": tool}


def grammar(syntax: str, definition: str) -> Any:
    form = {"syntax": syntax, "definition": definition}
    return custom(format={"type": "grammar", "grammar": form})


def calling(text: str) -> Any:
    """A model that calls the tool with a text."""
    call = json.dumps({"name": "apply_patch", "arguments": {"input": text}})
    return scripted(f"<tool_call>\n{call}\n</tool_call>")


@pytest.mark.parametrize(
    ("syntax", "definition"), [("lark", 'start: "x" A\nA: /"+/'), ("regex", '^x"+$')]
)
def test_the_grammar_of_a_custom_tool_is_enforced(syntax: str, definition: str) -> None:
    tools = [{"type": "function", "function": FUNCTION}, grammar(syntax, definition)]
    fields: Any = {"model": "any", "messages": TALK, "tools": tools, "max_tokens": 200}
    forced: Any = {"type": "custom", "custom": {"name": "apply_patch"}}
    allowed: Any = {
        "type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [forced]},
    }  # fmt: skip
    with client_of(calling("yes")) as client:
        for choice in (forced, allowed):
            answer = client.chat.completions.create(**fields, tool_choice=choice)
            (call,) = (answer.choices[0].message.tool_calls or [])[:1]
            assert call.type == "custom"
            assert call.custom.name == "apply_patch"
            assert call.custom.input.startswith('x"')
            assert set(call.custom.input) == {"x", '"'}
        tools[1]["custom"]["format"]["grammar"]["definition"] = "start: ("
        with pytest.raises(openai.BadRequestError, match="valid grammar") as caught:
            client.chat.completions.create(**fields)
        assert caught.value.param == "tools[1].custom.format.grammar.definition"


def test_the_input_streams_and_is_read_again() -> None:
    text = '*** Begin Patch\n"x"\n'
    fields: Any = {"model": "any", "tools": [custom(format={"type": "text"})]}
    with client_of(calling(text)) as client:
        whole = client.chat.completions.create(**fields, messages=TALK)
        message = whole.choices[0].message
        (call,) = message.tool_calls or []
        assert (call.type, whole.choices[0].finish_reason) == ("custom", "tool_calls")
        assert call.model_dump(exclude={"id"}) == {
            "type": "custom", "custom": {"name": "apply_patch", "input": text},
        }  # fmt: skip
        stream = client.chat.completions.create(**fields, messages=TALK, stream=True)
        deltas = [
            delta.model_dump(exclude_unset=True)
            for chunk in stream
            for delta in chunk.choices[0].delta.tool_calls or []
        ]
        assert deltas[0]["custom"]["name"] == "apply_patch"
        assert deltas[0]["id"]
        assert [delta.get("type") for delta in deltas[:2]] == ["custom", None]
        assert len([delta for delta in deltas if delta["custom"]["input"]]) > 2
        assert "".join(delta["custom"]["input"] for delta in deltas) == text
        result = {"role": "tool", "tool_call_id": call.id, "content": "ok"}
        history: Any = [*TALK, message.model_dump(), result]
        assert client.chat.completions.create(**fields, messages=history).choices
        short = client.chat.completions.create(**fields, messages=TALK, max_tokens=60)
        (part,) = short.choices[0].message.tool_calls or []
        assert part.type == "custom"
        assert short.choices[0].finish_reason == "length"
        assert text.startswith(part.custom.input)
