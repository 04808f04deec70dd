"""Tool calls for models whose chat template has no form for them, as llama.cpp's generic form.

{"tool_calls": [{"name": "f", "arguments": {"a": 1}}]}    or    {"response": "text"}

A system text lists the tools and describes this form, and the grammar of the answer enforces it.
Source: common_chat_params_init_generic in llama.cpp's common/chat.cpp, with the texts of minja's
chat_template::apply for templates without tools. Unlike there, a single call has the same form as
several, calls have no ids, and the tools are not indented, which takes fewer tokens.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hearthd.text.tool_calls.call_format import SPACE, CallFormat
from hearthd.text.tool_calls.json_calls import named_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

GENERIC = CallFormat(
    marker="{",
    opening=(SPACE, '"tool_calls"', SPACE, ":", SPACE, "[", SPACE),
    **named_objects(),
    separator=(SPACE, ",", SPACE),
    closing=(SPACE, "]", SPACE, "}"),
    response=(("{", SPACE, '"response"', SPACE, ":", SPACE, '"'), (SPACE, "}")),
    only_first=True,
)

_TOOLS = "You can call any of the following tools to satisfy the user's requests:"
_FORM = (
    'Respond in JSON format, either with a request to call tools, such as {"tool_calls": [{"name": '
    '"the name of a tool", "arguments": {}}]}, or with a reply to the user, such as {"response": '
    '"the text"}. A user message with `tool_response` is the result of a call.'
)


def system_text(tools: Sequence[dict[str, Any]]) -> str:
    """The text that tells a model about tools, which are in OpenAI's form, one a line."""
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return f"{_TOOLS}\n\n{listed}\n\n{_FORM}"


def with_texts(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with calls and their results as texts of the model and the user.

    Results, and what the user says after them, are one message: many templates need the roles to
    alternate.
    """
    converted: list[dict[str, Any]] = []
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        text = _text(message)
        if after_result and (is_result or message["role"] == "user"):
            converted[-1]["content"] += f"\n\n{text}"
        else:
            removed = {"tool_calls", *(("name", "tool_call_id") if is_result else ())}
            kept = {key: value for key, value in message.items() if key not in removed}
            role = "user" if is_result else message["role"]
            converted.append({**kept, "role": role, "content": text})
        after_result = is_result
    return converted


def _text(message: dict[str, Any]) -> str:
    """The text that stands for a message."""
    content: str = message["content"]
    if message["role"] == "tool":
        result = {"tool": message["name"], "content": content}
        return json.dumps({"tool_response": result}, ensure_ascii=False)
    if "tool_calls" not in message:
        return content
    calls = [
        {"name": function["name"], "arguments": function["arguments"]}
        for call in message["tool_calls"]
        for function in (call["function"],)
    ]
    text = json.dumps({"tool_calls": calls}, ensure_ascii=False)
    return f"{content}\n\n{text}" if content else text
