"""The form in which a chat template takes the arguments of a tool call.

Most templates take an object and write it as JSON, as in transformers. Some join the arguments to
other text, so they need the JSON text that OpenAI's API has. A probe shows which it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

_ARGUMENTS = {"probe_name": "probe_value"}


def takes_text(render: Callable[[list[dict[str, Any]]], str]) -> bool:
    """Whether a template takes arguments as text only; `render` raises InvalidRequest."""
    try:
        if str(_ARGUMENTS) not in render(_conversation(_ARGUMENTS)):
            return False
    except InvalidRequest:  # it cannot join an object and a text
        pass
    text = json.dumps(_ARGUMENTS)
    try:
        return text in render(_conversation(text))
    except InvalidRequest:
        return False


def with_text(message: dict[str, Any]) -> dict[str, Any]:
    """The message with the arguments of its tool calls as JSON text."""
    if "tool_calls" not in message:
        return message
    calls = [
        {**call, "function": {**function, "arguments": _json(function["arguments"])}}
        for call in message["tool_calls"]
        for function in (call["function"],)
    ]
    return {**message, "tool_calls": calls}


def _json(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _conversation(arguments: dict[str, Any] | str) -> list[dict[str, Any]]:
    """A conversation that ends with a call; its id has the form that Mistral's templates need."""
    function = {"name": "probe", "arguments": arguments}
    call = {"id": "call00001", "type": "function", "function": function}
    return [
        {"role": "user", "content": "probe"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
