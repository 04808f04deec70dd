"""Messages for templates without a form for tools: the tools, calls and results as texts.

Source: the texts of minja's chat_template::apply, which llama.cpp used for such templates. Unlike
there, the tools are not indented, which takes fewer tokens.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hearthd.text.templates import content_form

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        content = _content(message)
        if after_result and (is_result or message["role"] == "user"):
            converted[-1]["content"] = content_form.joined(converted[-1]["content"], content)
        else:
            removed = {"tool_calls", *(("name", "tool_call_id") if is_result else ())}
            kept = {key: value for key, value in message.items() if key not in removed}
            role = "user" if is_result else message["role"]
            converted.append({**kept, "role": role, "content": content})
        after_result = is_result
    return converted


def _content(message: dict[str, Any]) -> content_form.Content:
    """The content that stands for a message."""
    content: content_form.Content = message["content"]
    if message["role"] == "tool":
        text, others = content_form.divided(content)
        result = {"tool": message["name"], "content": text}
        written = json.dumps({"tool_response": result}, ensure_ascii=False)
        return content_form.joined(written, others) if others else written
    if "tool_calls" not in message:
        return content
    calls = [
        {"name": function["name"], "arguments": function["arguments"]}
        for call in message["tool_calls"]
        for function in (call["function"],)
    ]
    text = json.dumps({"tool_calls": calls}, ensure_ascii=False)
    return content_form.joined(content, text) if content else text
