"""Tool calls that are JSON with a name and arguments, between markers.

Hermes, Qwen   <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
Llama 3        {"name": "f", "parameters": {"a": 1}}
Mistral        [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]
               [TOOL_CALLS]f[ARGS]{"a": 1}
Granite 3      <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]
Phi 4          <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.text.tool_calls.call_format import (
    CallFormat,
    Parsed,
    ToolCall,
    read_json,
    skip_space,
    tool_call,
)
from hearthd.text.value_marks import marked_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.text.tool_calls.call_format import Signature

_SPACE_RULE = r"SPACE: /[ \t\n]{1,8}/"


@dataclass(frozen=True, kw_only=True)
class JsonCalls(CallFormat):
    """Objects with `name` and `arguments_key`, between one of `starts` and `end`.

    With `array`, one array holds all calls. Without it, each call has its own markers.
    """

    starts: tuple[str, ...]
    end: str = ""
    array: bool = False
    arguments_key: str = "arguments"
    special: tuple[str, ...] = ()
    id_length: int | None = None

    @override
    def parse(self, text: str, *, final: bool) -> Parsed | None:
        start = max(len(start) for start in self.starts if text.startswith(start))
        try:
            value, end = read_json(text, start)
        except json.JSONDecodeError as error:
            # An end marker before the error is inside a string, as one after an open quote may be.
            at = text.find(self.end, error.pos) if self.end else -1
            if at < 0 or (not final and error.msg.startswith("Unterminated string")):
                return Parsed(length=len(text)) if final else None
            return Parsed(length=at + len(self.end))
        closing = skip_space(text, end)
        if text.startswith(self.end, closing):
            end = closing + len(self.end)
        elif not final and self.end.startswith(text[closing:]):
            return None
        calls = [self._call(item) for item in (value if isinstance(value, list) else [value])]
        complete = tuple(call for call in calls if call is not None)
        return Parsed(length=end, calls=complete if len(complete) == len(calls) else ())

    def _call(self, item: Any) -> ToolCall | None:
        if not isinstance(item, dict):
            return None
        return tool_call(item.get("name"), item.get(self.arguments_key, {}))

    @override
    def lark(
        self, tools: Sequence[Signature], quote: Callable[[str], str], *, parallel: bool
    ) -> str:
        start, end = quote(self.starts[0]), quote(self.end) if self.end else ""
        parallel = parallel and not self.only_first
        if "{" in self.starts:  # the marker may be absent
            start += "?"
        if self.array:
            more = '(SPACE? "," SPACE? call)*' if parallel else ""
            calls = f'{start} SPACE? "[" SPACE? call {more} SPACE? "]" SPACE? {end}'
        else:
            calls = "marked (SPACE? marked)*" if parallel else "marked"
        marked = "" if self.array else f"marked: {start} SPACE? call SPACE? {end}"
        return "\n".join([f"calls: {calls}", marked, *self._objects(tools), _SPACE_RULE])

    def _objects(self, tools: Sequence[Signature]) -> list[str]:
        """The rule `call`, an object that calls one of the tools."""
        key, colon = json.dumps(json.dumps(self.arguments_key)), 'SPACE? ":" SPACE?'
        rules = ["call: " + " | ".join(f"call_{number}" for number in range(len(tools)))]
        for number, tool in enumerate(tools):
            name = json.dumps(json.dumps(tool.name))
            rules += [
                f'call_{number}: "{{" SPACE? "\\"name\\"" {colon} {name} SPACE? "," SPACE? '
                f'{key} {colon} arguments_{number} SPACE? "}}"',
                f"arguments_{number}: {marked_schema(tool.schema)}",
            ]
        return rules


_PYTHON_TAG = "<|python_tag|>"


@dataclass(frozen=True, kw_only=True)
class LlamaCalls(JsonCalls):
    """One object, which is the whole answer, with or without a marker: never several."""

    starts: tuple[str, ...] = (_PYTHON_TAG, "{")
    arguments_key: str = "parameters"
    only_first: bool = True
    special: tuple[str, ...] = (_PYTHON_TAG,)

    @override
    def parse(self, text: str, *, final: bool) -> Parsed | None:
        """A text that has no name at its beginning is not a call."""
        body = text.removeprefix(_PYTHON_TAG).lstrip()
        first = body[1:].lstrip()
        if body and not (body[0] == "{" and '"name"'.startswith(first[: len('"name"')])):
            return Parsed(length=len(text))
        tag = text[: len(text) - len(body)]
        parsed = JsonCalls(starts=("",), arguments_key="parameters").parse(body, final=final)
        return parsed and Parsed(length=len(tag) + parsed.length, calls=parsed.calls)

    @property
    @override
    def trigger(self) -> bytes:
        return rb'\s*(?P<call>(<\|python_tag\|>)?\s*\{\s*"name"\s*:\s*")'


@dataclass(frozen=True, kw_only=True)
class NamedCalls(CallFormat):
    """Mistral's newer form: a marker, the name, a marker, the arguments."""

    starts: tuple[str, ...] = ("[TOOL_CALLS]",)
    special: tuple[str, ...] = ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")
    id_length: int | None = 9

    @override
    def parse(self, text: str, *, final: bool) -> Parsed | None:
        start = len(self.starts[0])
        head, marker, _ = text[start:].partition("[ARGS]")
        if not marker:
            return Parsed(length=len(text)) if final else None
        try:
            value, end = read_json(text, start + len(head) + len(marker))
        except ValueError:
            return Parsed(length=len(text)) if final else None
        call = tool_call(head.partition("[CALL_ID]")[0].strip(), value)
        return Parsed(length=end, calls=(call,) if call else ())

    @override
    def lark(
        self, tools: Sequence[Signature], quote: Callable[[str], str], *, parallel: bool
    ) -> str:
        marker, arguments = quote(self.starts[0]), quote("[ARGS]")
        rules = [
            "calls: call (SPACE? call)*" if parallel else "calls: call",
            "call: " + " | ".join(f"call_{number}" for number in range(len(tools))),
            _SPACE_RULE,
        ]
        for number, tool in enumerate(tools):
            rules.append(
                f"call_{number}: {marker} {json.dumps(tool.name)} {arguments} SPACE? "
                f"arguments_{number}"
            )
            rules.append(f"arguments_{number}: {marked_schema(tool.schema)}")
        return "\n".join(rules)


HERMES = JsonCalls(
    starts=("<tool_call>",), end="</tool_call>", special=("<tool_call>", "</tool_call>")
)
LLAMA_3 = LlamaCalls()
MISTRAL = JsonCalls(starts=("[TOOL_CALLS]",), array=True, special=("[TOOL_CALLS]",), id_length=9)
MISTRAL_NAMED = NamedCalls()
GRANITE = JsonCalls(starts=("<|tool_call|>",), array=True, special=("<|tool_call|>",))
PHI = JsonCalls(
    starts=("<|tool_call|>",),
    end="<|/tool_call|>",
    array=True,
    special=("<|tool_call|>", "<|/tool_call|>"),
)
