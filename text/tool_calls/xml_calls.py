"""Tool calls in XML, as Qwen3-Coder, Qwen3.5 and Nemotron 3 write them.

<tool_call>
<function=f>
<parameter=a>
text
</parameter>
<parameter=b>
[1, true]
</parameter>
</function>
</tool_call>

A parameter that is a text by its schema is written as it is; others are JSON. Source: the chat
templates of these models.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.text.text_overlap import overlap
from hearthd.text.tool_calls.arguments import ArgumentReader, JsonArguments
from hearthd.text.tool_calls.call_format import NAME, SPACE, CallFormat, UnsupportedSchema
from hearthd.text.tool_calls.parameter_schemas import (
    alternatives,
    kind,
    kinds,
    listed,
    objects,
    parameter,
)
from hearthd.text.value_marks import marked_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.text.tool_calls.call_format import Signature

_PARAMETER = re.compile(r"<parameter=([^>\n]*)>\n?")
_BEGIN, _LAST = "<parameter=", "</function>"
_END = "\n</parameter>\n"  # the first one after the beginning of a value ends it
_BARE_END = "</parameter>"  # of a value that begins on the line of its name
_END_QUOTED = json.dumps(_END)
_ANY_NAME = r"/<parameter=[^>\n]+>\n/"
_WITHOUT_END = r"~/(.|\n)*\n<\/parameter>(\n(.|\n)*)?/"
# The templates write these values as Python does.
_LITERALS = {"True": "true", "False": "false", "None": "null"}
# Keywords of a text, and of an object that has parameters, that are enforced or restrict nothing.
_OF_TEXT = frozenset("type enum const title description default examples format".split())
_OF_OBJECT = frozenset(
    "type properties required additionalProperties title description $defs definitions $schema "
    "x-guidance strict".split()
)
# Keywords of the root that hold for the schemas of parameters.
_SHARED = ("$defs", "definitions", "x-guidance")


@dataclass(frozen=True, kw_only=True)
class XmlCalls(CallFormat):
    """Calls whose arguments are elements of XML, each with a marker of its own."""

    @override
    def arguments(self, schema: Mapping[str, Any]) -> ArgumentReader:
        return _Arguments(schema)

    @override
    def argument_rules(
        self, name: str, tool: Signature, _quote: Callable[[str], str]
    ) -> Sequence[str]:
        text = name.upper()
        if tool.input is not None:
            return [
                f'{name}: "{_BEGIN}input>\\n" {text}_AND_END',
                # In one terminal, so that the text does not take the end for more of itself.
                f"{text}_AND_END: {text} {_END_QUOTED}",
                f"{text}: /{tool.input}/ & {_WITHOUT_END}",
            ]
        given = json.loads(tool.schema)
        choices = objects(given)
        if len(choices) == 1:
            return _parameters(name, choices[0], given, tool)
        names = [f"{name}_of_{number}" for number in range(len(choices))]
        return [
            f"{name}: {' | '.join(names) or _EMPTY}",
            *(
                rule
                for each, choice in zip(names, choices, strict=True)
                for rule in _parameters(each, choice, given, tool)
            ),
        ]


_EMPTY = '""'
XML = XmlCalls(
    marker="<tool_call>",
    opening=(SPACE,),
    head=("<function=", NAME, ">"),
    middle=(SPACE,),
    tail=(SPACE, _LAST),
    closing=(SPACE, "</tool_call>"),
    special=("<tool_call>", "</tool_call>"),
    json_texts=False,
)


def _parameters(
    name: str, root: Mapping[str, Any], given: Mapping[str, Any], tool: Signature
) -> list[str]:
    """The rules of the parameters of an object schema without alternatives, first `name`."""
    others = root.get("additionalProperties", True)
    unknown = [keyword for keyword in root if keyword not in _OF_OBJECT]
    if "additionalProperties" in root and others is not False:
        unknown.append("additionalProperties")
    if unknown and tool.strict:
        raise UnsupportedSchema(tool.name, unknown[0])
    required, members, rules = set(root.get("required", ())), [], []
    for number, (key, schema) in enumerate(root.get("properties", {}).items()):
        if ">" in key or "\n" in key:
            raise UnsupportedSchema(tool.name, f"the name {json.dumps(key)}")
        member = f"{name}_{number}"
        value = _value(f"{member}_value", schema, given, tool)
        if value:
            begin = json.dumps(f"{_BEGIN}{key}>\n", ensure_ascii=False)
            rules += [f"{member}: {begin} {member}_value", *value]
            members.append(member if key in required else f"{member}?")
    if others is not False or "patternProperties" in root:
        value = _value(f"{name}_any_value", others, given, tool)
        rules += [f"{name}_any: {_ANY_NAME} {name}_any_value", *value]
        members.append(f"{name}_any*")
    return [f"{name}: {' '.join(members) or _EMPTY}", *rules]


def _value(name: str, schema: Any, root: Mapping[str, Any], tool: Signature) -> list[str]:
    """The rules of a parameter's value and its end, first the rule `name`; none for no value."""
    values: list[Any] = []
    texts, others = [], []
    choices = list(alternatives(schema, root))
    for choice in choices:
        if (known := listed(choice)) is not None:
            values += known
        elif "string" in kinds(choice):
            texts.append(choice)
        else:
            others.append(choice)
    if texts:
        unknown = [key for choice in choices for key in choice if key not in _OF_TEXT]
        # A text beside them can look like another number.
        unknown += ["enum" for value in values if not isinstance(value, str | None)]
        if unknown and tool.strict:
            raise UnsupportedSchema(tool.name, unknown[0])
        return [f"{name}[suffix={_END_QUOTED}]: /(.|\\n)*/"]
    written = [value if isinstance(value, str) else json.dumps(value) for value in values]
    if any((text + _END).index(_END) < len(text) for text in written):
        raise UnsupportedSchema(tool.name, f"a text with {_BARE_END}")
    bodies = [json.dumps(text, ensure_ascii=False) for text in written]
    rules = []
    if others:
        bodies.append(f"{name}_json")
        shared = {key: root[key] for key in _SHARED if key in root}
        json_schema = {**(others[0] if len(others) == 1 else {"anyOf": others}), **shared}
        rules.append(f"{name}_json: {marked_schema(json.dumps(json_schema))}")
    return [f"{name}: ({' | '.join(bodies)}) {_END_QUOTED}", *rules] if bodies else []


class _Arguments(ArgumentReader):
    """Parameters in XML, which are passed on as the members of an object."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        super().__init__()
        self._schema = schema
        self._began = False
        self._reading = False  # whether a value is read
        self._end = _END  # of the value
        self._kinds: frozenset[str] = frozenset()  # its JSON types by the schema
        self._listed: list[Any] = []  # values by the schema
        self._in_text = False  # whether the value is passed on as it arrives

    @override
    def _token(self, text: str, start: int) -> tuple[str, int] | None:
        if self._reading:
            return self._value(text, start)
        if text[start].isspace():
            return "", start + 1
        if text.startswith(_LAST, start):
            self.ended = True
            return ("}" if self._began else "{}"), start
        found = _PARAMETER.match(text, start)
        if found and found.end() < len(text):
            self._end = _END if found[0].endswith("\n") else _BARE_END
            return self._begin(found[1]), found.end()
        rest = text[start:]
        if found or _LAST.startswith(rest) or _BEGIN.startswith(rest) or rest.startswith(_BEGIN):
            return None
        return "", start + 1  # not what the grammar allows

    def _begin(self, name: str) -> str:
        written = f"{', ' if self._began else '{'}{json.dumps(name, ensure_ascii=False)}: "
        self._began = self._reading = True
        choices = list(alternatives(parameter(name, self._schema), self._schema))
        self._kinds = frozenset().union(*map(kinds, choices))
        self._listed = [value for choice in choices for value in listed(choice) or ()]
        self._in_text = self._kinds == {"string"}
        return f'{written}"' if self._in_text else written

    def _value(self, text: str, start: int) -> tuple[str, int] | None:
        at = text.find(self._end, start)
        if at >= 0:
            self._reading = False
            value = text[start:at]
            written = f'{_escaped(value)}"' if self._in_text else self._as_json(value)
            return written, at + len(self._end)
        if not self._in_text:
            return None
        end = len(text) - overlap(text[start:], [self._end])
        return (_escaped(text[start:end]), end) if end > start else None

    def _as_json(self, value: str) -> str:
        """A value that can be another one than a text; a text, if the schema says so."""
        bare = _LITERALS.get(value.strip(), value.strip())
        kind_ = _kind(bare)
        may_be_text = "string" in self._kinds
        is_text = value in self._listed or kind_ == "string" or kind_ not in self._kinds
        if kind_ is not None and not (may_be_text and is_text):
            reader = JsonArguments()
            written = reader.push(f"{bare} ")
            if reader.ended or kind_ not in ("array", "object"):
                return written
        return f'"{_escaped(value)}"'


def _kind(text: str) -> str | None:
    """The type of a value in JSON, or None for other texts."""
    try:
        return kind(json.loads(text, parse_int=lambda _: 0, parse_constant=_refuse_constant))
    except ValueError:
        return None
    except RecursionError:  # as deep as the grammar of JSON allows
        return "array" if text.startswith("[") else "object"


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _escaped(text: str) -> str:
    """The characters of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
