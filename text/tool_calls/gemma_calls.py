"""The tool calls of FunctionGemma and Gemma 4.

<start_function_call>call:f{a:<escape>text<escape>,b:[1,true]}<end_function_call>
<|tool_call>call:f{a:<|"|>text<|"|>,b:[1,true]}<tool_call|>

Strings are between two special tokens, and the keys of objects are bare words.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.text.text_overlap import overlap
from hearthd.text.tool_calls.arguments import ArgumentReader, finite
from hearthd.text.tool_calls.call_format import NAME, CallFormat, UnsupportedSchema
from hearthd.text.tool_calls.member_rules import member_sequence
from hearthd.text.tool_calls.parameter_schemas import objects
from hearthd.text.value_marks import (
    FUNCTION_GEMMA_DELIMITER,
    FUNCTION_GEMMA_VALUE,
    GEMMA_4_DELIMITER,
    GEMMA_4_VALUE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hearthd.text.tool_calls.call_format import Signature

_WORD = re.compile(r"[^\[\]{},:<]+")
_LITERAL = re.compile(r"true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True, kw_only=True)
class GemmaCalls(CallFormat):
    """Calls between two special tokens.

    escape  the token around a string
    mark    the mark of values in grammars
    """

    escape: str
    mark: str

    @override
    def arguments(self, _schema: Mapping[str, Any]) -> ArgumentReader:
        return _Arguments(self.escape)

    @override
    def written_arguments(self, arguments: Mapping[str, Any]) -> str:
        return self._written(arguments)

    def _written(self, value: Any) -> str:
        if isinstance(value, str):
            return f"{self.escape}{value}{self.escape}"
        if isinstance(value, dict):
            members = (f"{key}:{self._written(item)}" for key, item in value.items())
            return f"{{{','.join(members)}}}"
        if isinstance(value, list):
            return f"[{','.join(map(self._written, value))}]"
        return json.dumps(value)

    @override
    def argument_rules(
        self, name: str, tool: Signature, quote: Callable[[str], str]
    ) -> Sequence[str]:
        escape = quote(self.escape)
        if tool.input is not None:
            text = name.upper()
            return [
                f'{name}: "{{input:" {escape} {text} {escape} "}}"',
                f"{text}: /{tool.input}/",
            ]
        values = _Values(tool, name.replace("arguments", "value"), escape)
        return [f"{name}: {values.start}", *values.rules]

    @override
    def lark(
        self, tools: Sequence[Signature], quote: Callable[[str], str], *, parallel: bool
    ) -> str:
        terminals = _terminals(quote(self.escape), self.escape, self.mark)
        return "\n".join([super().lark(tools, quote, parallel=parallel), *terminals])


def _calls_between(start: str, end: str, *, response: str, escape: str, mark: str) -> GemmaCalls:
    return GemmaCalls(
        marker=start,
        head=("call:", NAME),
        middle=(),
        between=(),
        closing=(end,),
        special=(start, end, escape, response),
        stop=(response,),
        json_texts=False,
        escape=escape,
        mark=mark,
    )


FUNCTION_GEMMA = _calls_between(
    "<start_function_call>",
    "<end_function_call>",
    response="<start_function_response>",
    escape=FUNCTION_GEMMA_DELIMITER,
    mark=FUNCTION_GEMMA_VALUE,
)
GEMMA_4 = _calls_between(
    "<|tool_call>",
    "<tool_call|>",
    response="<|tool_response>",
    escape=GEMMA_4_DELIMITER,
    mark=GEMMA_4_VALUE,
)


class _Arguments(ArgumentReader):
    """Arguments in this form. Brackets and commas are JSON's."""

    def __init__(self, escape: str) -> None:
        super().__init__()
        self._escape = escape
        self._in_text = False

    @override
    def _token(self, text: str, start: int) -> tuple[str, int] | None:
        if self._in_text:
            return self._text(text, start)
        if text.startswith(self._escape, start):
            self._in_text = True
            return '"', start + len(self._escape)
        if self._escape.startswith(text[start : start + len(self._escape)]):
            return None
        word = _WORD.match(text, start)
        if word is None:
            return self._sign(text[start]), start + 1
        if word.end() == len(text):
            return None
        bare = word[0].strip()
        if text[word.end()] == ":":
            return json.dumps(bare), word.end()
        bare = "null" if bare == "None" else bare  # as Gemma 4's template writes it
        written = finite(bare) if _LITERAL.fullmatch(bare) else json.dumps(bare)
        return (written if bare else ""), word.end()

    def _text(self, text: str, start: int) -> tuple[str, int] | None:
        end = text.find(self._escape, start)
        self._in_text = end < 0
        if end < 0:
            end = len(text) - overlap(text[start:], [self._escape])
        written = json.dumps(text[start:end], ensure_ascii=False)[1:-1]
        if not self._in_text:
            return f'{written}"', end + len(self._escape)
        return (written, end) if end > start else None


def _terminals(escape: str, delimiter: str, mark: str) -> list[str]:
    """Values of any schema, whose strings are between terminals `escape` for the delimiter."""
    # A special token cannot be part of a text; the same name as plain text can.
    other = re.escape(delimiter[1])
    text = r"/(.|\n)*/" if escape.startswith("<[") else rf"/([^<]|<[^{other}])*/"
    return [
        f"value: {mark}? any",
        f"object: {mark}? any_object",
        f"string: {escape} TEXT? {escape}",
        f"TEXT: {text}",
        r"INTEGER: /-?(0|[1-9][0-9]{0,15})/",
        r"NUMBER: /-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?/",
        r"KEY: /[A-Za-z_][A-Za-z0-9_]{0,40}/",
        'boolean: "true" | "false"',
        'any: string | NUMBER | boolean | "null" | any_object | any_array',
        'any_object: "{" (KEY ":" any ("," KEY ":" any)*)? "}"',
        'any_array: "[" (any ("," any)*)? "]"',
    ]


_TYPES = {
    "string": "string",
    "integer": "INTEGER",
    "number": "NUMBER",
    "boolean": "boolean",
    "null": '"null"',
    "object": "object",
}
# Keywords that are enforced, and those that restrict nothing.
_ENFORCED = frozenset(
    "type properties required items enum const anyOf oneOf $ref $defs definitions "
    "additionalProperties minItems maxItems".split()
)
_ANNOTATIONS = frozenset(
    "title description default examples deprecated readOnly writeOnly $schema $id $comment "
    "nullable format x-guidance strict".split()
)
_MAX_RULES = 2000


class _Values:
    """The rules of the arguments of one tool; `start` is the name of the first."""

    def __init__(self, tool: Signature, prefix: str, escape: str) -> None:
        self.rules: list[str] = []
        self._tool = tool
        self._prefix = prefix
        self._escape = escape
        self._root = json.loads(tool.schema)
        self._references: dict[str, str] = {}
        starts = [self._value(choice) for choice in objects(self._root)]
        self.start = starts[0] if len(starts) == 1 else self._rule(" | ".join(starts) or '"{" "}"')

    def _rule(self, body: str, name: str | None = None) -> str:
        if len(self.rules) == _MAX_RULES:
            raise UnsupportedSchema(self._tool.name, "a schema of this size")
        name = name or f"{self._prefix}_{len(self.rules)}"
        self.rules.append(f"{name}: {body}")
        return name

    def _value(self, schema: Any) -> str:
        """The name of the rule for a schema."""
        if not isinstance(schema, dict):
            return "value"
        unknown = [keyword for keyword in schema if keyword not in _ENFORCED | _ANNOTATIONS]
        if unknown and self._tool.strict:
            raise UnsupportedSchema(self._tool.name, unknown[0])
        if "$ref" in schema:
            return self._reference(str(schema["$ref"]))
        if "const" in schema or "enum" in schema:
            values = schema.get("enum", [schema.get("const")])
            return self._rule(" | ".join(self._literal(value) for value in values))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._rule(" | ".join(self._value(part) for part in schema[keyword]))
        types = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(types, list):
            return self._rule(" | ".join(self._value({**schema, "type": type_}) for type_ in types))
        return self._of_type(str(types), schema)

    def _of_type(self, type_: str, schema: dict[str, Any]) -> str:
        closed = schema.get("additionalProperties") is False
        if type_ == "object" and closed and not schema.get("properties"):
            return self._rule('"{" "}"')
        if type_ == "object" and schema.get("properties"):
            return self._object(schema["properties"], set(schema.get("required", ())))
        if type_ == "array":
            return self._array(schema)
        return _TYPES.get(type_, "value")

    def _reference(self, path: str) -> str:
        if path not in self._references:
            target: Any = self._root
            for key in path.removeprefix("#").strip("/").split("/") if path != "#" else ():
                target = target.get(key) if isinstance(target, dict) else None
            if not path.startswith("#") or target is None:
                raise UnsupportedSchema(self._tool.name, f"$ref {path}")
            name = f"{self._prefix}_ref_{len(self._references)}"
            self._references[path] = name
            self._rule(self._value(target), name)
        return self._references[path]

    def _literal(self, value: Any) -> str:
        if isinstance(value, str):
            escape = self._escape
            return f"{escape} {json.dumps(value)} {escape}" if value else f"{escape} {escape}"
        if isinstance(value, dict | list):
            raise UnsupportedSchema(self._tool.name, "an enum of objects or arrays")
        return json.dumps(json.dumps(value))

    def _array(self, schema: dict[str, Any]) -> str:
        item = self._value(schema.get("items"))
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if most == 0:
            return self._rule('"[" "]"')
        rest = f'("," {item}){{{max(least - 1, 0)},{"" if most is None else most - 1}}}'
        items = f"{item} {rest}"
        return self._rule(f'"[" {items} "]"' if least else f'"[" ({items})? "]"')

    def _object(self, properties: dict[str, Any], required: set[str]) -> str:
        """Members in the order of the schema; optional ones may be absent."""
        members = [(member, name in required) for name, member in self._members(properties)]
        return self._rule(f'"{{" ({member_sequence(members, self._rule)}) "}}"')

    def _members(self, properties: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for name, schema in properties.items():
            yield name, self._rule(f"{json.dumps(name + ':')} {self._value(schema)}")
