"""Tool calls as a list of Python's calls, as LFM2 writes them.

<|tool_call_start|>[f(a='text', b=[1, True]), g()]<|tool_call_end|>

Values are literals of Python, or JSON: strings have either quotes. Source: LFM2's model cards and
chat templates, and common/parsers/lfm2.cpp of llama.cpp.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.text.tool_calls.arguments import ArgumentReader, JsonString, finite
from hearthd.text.tool_calls.call_format import NAME, SPACE, CallFormat
from hearthd.text.tool_calls.member_rules import member_sequence
from hearthd.text.tool_calls.parameter_schemas import alternatives, kinds, objects
from hearthd.text.value_marks import marked_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.text.tool_calls.call_format import Signature

_START, _END = "<|tool_call_start|>", "<|tool_call_end|>"
_KEY = re.compile(r"([^\W\d]\w*)\s*=\s*")
_WORD = re.compile(r"[^\s{}\[\](),:'\"=]+")
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
# Characters of a string without its quotes, as they are and as escapes.
_PLAIN = re.compile(r"[^\\'\"]+")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[^xuU])", re.DOTALL)
_LONGEST_ESCAPE = 10  # characters
_CONTROLS = {"a": "\a", "v": "\v", "0": "\0", "'": "'", "\n": ""}
# A string that no keyword restricts may have other quotes than JSON's.
_ANNOTATIONS = frozenset("type title description default examples".split())
_SINGLE_QUOTED = r"/'([^'\\\n]|\\['\"\\nrt])*'/"


@dataclass(frozen=True, kw_only=True)
class PythonCalls(CallFormat):
    """Calls of functions with keyword arguments."""

    @override
    def arguments(self, _schema: Mapping[str, Any]) -> ArgumentReader:
        return _Arguments()

    @override
    def written_arguments(self, arguments: Mapping[str, Any]) -> str:
        texts = (json.dumps(value, ensure_ascii=False) for value in arguments.values())
        return ", ".join(f"{key}={text}" for key, text in zip(arguments, texts, strict=True))

    @override
    def argument_rules(
        self, name: str, tool: Signature, _quote: Callable[[str], str]
    ) -> Sequence[str]:
        if tool.input is not None:
            text = name.upper()
            return [f'{name}: "input=" {text}', f'{text}: /"{tool.input}"/']
        root = json.loads(tool.schema)
        rules: list[str] = []
        choices = [_arguments(name, number, choice, root, rules)
                   for number, choice in enumerate(objects(root))]  # fmt: skip
        return [f"{name}: {' | '.join(choices) or chr(34) * 2}", *rules]


PYTHON = PythonCalls(
    marker=_START,
    opening=(SPACE, "[", SPACE),
    head=(NAME, "("),
    middle=(SPACE,),
    tail=(SPACE, ")"),
    separator=(SPACE, ",", SPACE),
    closing=(SPACE, "]", SPACE, _END),
    special=(_START, _END),
)


def _arguments(
    name: str, number: int, choice: Mapping[str, Any], root: Mapping[str, Any], rules: list[str]
) -> str:
    """The name of the rule of the arguments of an object schema; adds to `rules`."""
    prefix = f"{name}_{number}"

    def add(body: str) -> str:
        rules.append(f"{prefix}_{len(rules)}: {body}")
        return f"{prefix}_{len(rules) - 1}"

    required = set(choice.get("required", ()))
    members = [
        (add(f"{json.dumps(key + '=')} {add(_value(schema, root))}"), key in required)
        for key, schema in choice.get("properties", {}).items()
        if schema is not False
    ]
    if members or choice.get("additionalProperties") is False:
        return add(member_sequence(members, add, separator='", "'))
    more = add(f'/[A-Za-z_][A-Za-z0-9_]{{0,40}}/ "=" {add(marked_schema("{}"))}')
    return add(f'({more} (", " {more})*)?')


def _value(schema: Any, root: Mapping[str, Any]) -> str:
    """A value: JSON, or what only Python writes for a schema without other keywords."""
    shared = {key: root[key] for key in ("$defs", "definitions", "x-guidance") if key in root}
    of_json = {**schema, **shared} if isinstance(schema, dict) else schema
    bodies = [marked_schema(json.dumps(of_json))]
    for choice in alternatives(schema, root):
        if choice.keys() <= _ANNOTATIONS:
            written = {"string": _SINGLE_QUOTED, "boolean": '"True" | "False"', "null": '"None"'}
            bodies += [written[kind] for kind in sorted(kinds(choice)) if kind in written]
    return " | ".join(dict.fromkeys(bodies))


class _Arguments(ArgumentReader):
    """Keyword arguments, which are passed on as the members of an object."""

    def __init__(self) -> None:
        super().__init__()
        self._began = False
        self._in_value = False
        self._quote = ""  # of the string that is read
        self._string = JsonString()

    @override
    def _token(self, text: str, start: int) -> tuple[str, int] | None:
        if self._quote:
            return self._characters(text, start)
        if text[start].isspace():
            return "", start + 1
        return self._of_value(text, start) if self._in_value else self._key(text, start)

    def _key(self, text: str, start: int) -> tuple[str, int] | None:
        if text[start] == ")":
            self.ended = True
            return ("}" if self._began else "{}"), start
        found = _KEY.match(text, start)
        if found and found.end() < len(text):
            comma = ", " if self._began else "{"
            self._began = self._in_value = True
            return f"{comma}{json.dumps(found[1], ensure_ascii=False)}: ", found.end()
        if found or re.fullmatch(r"\w+\s*", text[start:]):
            return None
        return "", start + 1  # the comma between two arguments

    def _of_value(self, text: str, start: int) -> tuple[str, int] | None:
        sign = text[start]
        if sign in "'\"":
            self._quote, self._string = sign, JsonString()
            return '"', start + 1
        word = _WORD.match(text, start)
        if word is not None:
            if word.end() == len(text):
                return None
            return self._closed(_literal(word[0])), word.end()
        if sign == ")" or (sign == "," and not self._depth):
            self._in_value = False
            return "", start
        return self._bracket(sign), start + 1

    def _bracket(self, sign: str) -> str:
        self._depth += (sign in "{[") - (sign in "}]")
        return self._closed(f"{sign} " if sign in ",:" else sign)

    def _closed(self, written: str) -> str:
        """What was written; a value that is complete at the top is followed by its end."""
        self._in_value = self._in_value and (self._depth > 0 or written in "{[")
        return written

    def _characters(self, text: str, start: int) -> tuple[str, int] | None:
        """More of a string, whose escapes become JSON's."""
        plain = _PLAIN.match(text, start)
        if plain:
            return self._string.push(_escaped(plain[0])), plain.end()
        if text[start] == self._quote:
            self._quote = ""
            return self._closed(self._string.push('"') + '"'), start + 1
        if text[start] != "\\":
            return self._string.push(_escaped(text[start])), start + 1
        found = _ESCAPE.match(text, start)
        if found is None:
            if len(text) - start < _LONGEST_ESCAPE:
                return None
            return self._string.push("\\\\"), start + 1
        return self._string.push(_json_escape(found[1])), found.end()


def _literal(word: str) -> str:
    """A word as JSON: a number, true, false or null; a text for any other."""
    word = _LITERALS.get(word, word)
    if word in _LITERALS.values():
        return word
    return finite(word) if _NUMBER.fullmatch(word) else json.dumps(word, ensure_ascii=False)


def _json_escape(escape: str) -> str:
    """The characters of JSON for an escape of Python, without its backslash."""
    if escape in 'bfnrt\\"':
        return f"\\{escape}"
    if escape[0] in "xuU" and len(escape) > 1:
        code = int(escape[1:], 16)
        if code < 0x10000:  # half a surrogate pair is replaced as in JSON
            return f"\\u{code:04x}"
        return chr(code) if code <= sys.maxunicode else "\ufffd"
    return _escaped(_CONTROLS.get(escape, f"\\{escape}"))


def _escaped(text: str) -> str:
    """The characters of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
