"""Tool calls that are JSON with a name and arguments, between markers.

Hermes, Qwen   <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
Llama 3        {"name": "f", "parameters": {"a": 1}}
Mistral        [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "a1b2c3d4e"}]
               [TOOL_CALLS]f[CALL_ID]a1b2c3d4e[ARGS]{"a": 1}    without id in other versions
Granite 3      <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]
Phi 4          <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>
"""

from __future__ import annotations

from typing import Any

from hearthd.text.tool_calls.call_format import ID, NAME, SPACE, CallFormat


def named_objects(arguments_key: str = "arguments") -> dict[str, Any]:
    """The fields of a format whose calls are objects with `name` and `arguments_key`."""
    return {
        "head": ("{", SPACE, '"name"', SPACE, ":", SPACE, '"', NAME, '"'),
        "middle": (SPACE, ",", SPACE, f'"{arguments_key}"', SPACE, ":", SPACE),
        "tail": (SPACE, "}"),
    }


def array(end: str = "") -> dict[str, Any]:
    """The fields of a format in which one array holds all calls."""
    return {
        "opening": (SPACE, "[", SPACE),
        "separator": (SPACE, ",", SPACE),
        "closing": (SPACE, "]", *((SPACE, end) if end else ())),
    }


HERMES = CallFormat(
    marker="<tool_call>",
    opening=(SPACE,),
    **named_objects(),
    closing=(SPACE, "</tool_call>"),
    special=("<tool_call>", "</tool_call>"),
)
# One object, which is the whole answer, with or without a marker: never several.
LLAMA_3 = CallFormat(
    marker="<|python_tag|>",
    optional_marker=True,
    opening=(SPACE,),
    **named_objects("parameters"),
    only_first=True,
    special=("<|python_tag|>",),
)
_MISTRAL_ID = (SPACE, ",", SPACE, '"id"', SPACE, ":", SPACE, '"', ID, '"')
MISTRAL = CallFormat(
    marker="[TOOL_CALLS]",
    **(named_objects() | {"tail": (_MISTRAL_ID, SPACE, "}")}),
    **array(),
    special=("[TOOL_CALLS]",),
    id_length=9,
)
MISTRAL_NAMED = CallFormat(
    marker="[TOOL_CALLS]",
    head=(NAME, ("[CALL_ID]", ID), "[ARGS]"),
    middle=(SPACE,),
    special=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
    id_length=9,
)
GRANITE = CallFormat(
    marker="<|tool_call|>", **named_objects(), **array(), special=("<|tool_call|>",)
)
PHI = CallFormat(
    marker="<|tool_call|>",
    **named_objects(),
    **array("<|/tool_call|>"),
    special=("<|tool_call|>", "<|/tool_call|>"),
)
