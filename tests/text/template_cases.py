"""Conversations that chat templates are compared on."""

from __future__ import annotations

from typing import Any

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <in> a 'place', °C",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
_CALL = {
    "id": "a1b2c3d4e",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}},
}


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _model(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


_SYSTEM = {"role": "system", "content": "Be brief. /no_think"}
_CALLED = [
    _user("Weather?"),
    _model("", tool_calls=[_CALL]),
    {"role": "tool", "name": "get_weather", "tool_call_id": "a1b2c3d4e", "content": "sun"},
]
DATE = {"date_string": "26 Jul 2024"}

# name: messages, and options of transformers' apply_chat_template
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "question": ([_user(" Hello \n")], {"add_generation_prompt": True}),
    "turns": (
        [_SYSTEM, _user("Hi"), _model("Yes. "), _user("Bye")],
        {"add_generation_prompt": True},
    ),
    "no prompt": ([_user("Hi"), _model("Hey")], {}),
    "continued": ([_user("Hi"), _model("Once upon a time ")], {"continue_final_message": True}),
    "tools": ([_user("Weather?")], {"tools": [_TOOL], "add_generation_prompt": True}),
    "result": (_CALLED, {"tools": [_TOOL], "add_generation_prompt": True}),
    "after": (
        [*_CALLED, _model("Sunny.", reasoning_content="easy"), _user("Thanks")],
        {"tools": [_TOOL, _TOOL], "add_generation_prompt": True},
    ),
    "thinking": (
        [_user("Hi"), _model("4", reasoning_content="2 + 2")],
        {"enable_thinking": True, "thinking": True, "controls": {"length": "long"}},
    ),
    "not thinking": ([_user("Hi")], {"enable_thinking": False, "add_generation_prompt": True}),
}
