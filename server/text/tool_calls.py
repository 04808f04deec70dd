"""Find and parse tool calls in a model's answer, while its text arrives.

Hermes, Qwen       <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
FunctionGemma      <start_function_call>call:f{a:<escape>text<escape>}<end_function_call>
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A tool call by the model; `arguments` is a JSON object as text."""

    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class CallFormat:
    """How a model writes a call: `start`, text that `parse` reads, `end`.

    parse    returns None for text that is not a call
    special  names of special tokens that are part of a call and must appear in the text
    stop     strings that end the answer: the model waits for the tool's result
    """

    start: str
    end: str
    parse: Callable[[str], ToolCall | None]
    special: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def call_format(template: str) -> CallFormat | None:
    """The format that a chat template uses, or None."""
    return next((known for known in (FUNCTION_GEMMA, HERMES) if known.start in template), None)


class CallFilter:
    """Remove tool calls from text, with the white space around them.

    An incomplete call at the end is dropped. Text in the form of a call that cannot be parsed stays
    in the text. A format of None finds no calls.
    """

    def __init__(self, format_: CallFormat | None) -> None:
        self._format = format_
        self._held = ""
        self._inside = False
        self._space = ""  # white space before the current call
        self._after_call = False  # only white space has arrived since the last call
        self.count = 0

    def push(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Add text; return the text and the calls that are final now."""
        if self._format is None:
            return text, ()
        self._held += text
        passed = ""
        calls: list[ToolCall] = []
        while True:
            if not self._inside:
                passed += self._before(self._format.start)
                if not self._inside:
                    return passed, tuple(calls)
            body, end, rest = self._held.partition(self._format.end)
            if not end:
                return passed, tuple(calls)
            self._held, self._inside = rest, False
            if call := self._format.parse(body):
                calls.append(call)
                self.count += 1
                self._after_call = True
            else:
                self._after_call = False
                passed += self._space + self._format.start + body + end

    def flush(self) -> str:
        """The text that was held because it could have become a call."""
        text, self._held = self._held, ""
        return "" if self._inside or (self._after_call and not text.strip()) else text

    def _before(self, start: str) -> str:
        """Remove and return the text before a call; the rest is a call, or could become one."""
        text, started, rest = self._held.partition(start)
        if self._after_call:
            text = text.lstrip()
        end = len(text) if started else len(text) - _overlap(text, start)
        passed = text[:end].rstrip()
        self._after_call = self._after_call and not passed
        if started:
            self._inside, self._space, self._held = True, text[len(passed) :], rest
        else:
            self._held = text[len(passed) :]
        return passed


def _overlap(text: str, word: str) -> int:
    """The length of the longest suffix of `text` that is a prefix of `word`."""
    lengths = range(min(len(word) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(word[:length])), 0)


def _parse_hermes(body: str) -> ToolCall | None:
    try:
        call = json.loads(body)
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    return _tool_call(call["name"], call.get("arguments", {}))


_CALL = re.compile(r"\s*call:([^\s{]+)\s*(\{.*\})\s*", re.DOTALL)
_PART = re.compile(r"<escape>(.*?)<escape>|([^\[\]{},:<]+)(:?)", re.DOTALL)
_LITERAL = re.compile(r"true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?")


def _parse_function_gemma(body: str) -> ToolCall | None:
    call = _CALL.fullmatch(body)
    if call is None:
        return None
    try:
        return _tool_call(call[1], json.loads(_PART.sub(_as_json, call[2])))
    except ValueError:
        return None


def _as_json(part: re.Match[str]) -> str:
    """A key or value of FunctionGemma as JSON. Brackets and commas are JSON already."""
    escaped, bare, colon = part.groups()
    if escaped is not None:
        return json.dumps(escaped)
    word = bare.strip()
    is_json = not word or (not colon and _LITERAL.fullmatch(word))
    return (word if is_json else json.dumps(word)) + colon


def _tool_call(name: str, arguments: object) -> ToolCall | None:
    if not isinstance(arguments, dict):
        return None
    return ToolCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False))


HERMES = CallFormat(start="<tool_call>", end="</tool_call>", parse=_parse_hermes)
FUNCTION_GEMMA = CallFormat(
    start="<start_function_call>",
    end="<end_function_call>",
    parse=_parse_function_gemma,
    special=(
        "<start_function_call>",
        "<end_function_call>",
        "<escape>",
        "<start_function_response>",
    ),
    stop=("<start_function_response>",),
)
