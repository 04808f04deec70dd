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
from hearthd.text.tool_calls.arguments import ArgumentReader
from hearthd.text.tool_calls.call_format import NAME, SPACE, CallFormat, UnsupportedSchema
from hearthd.text.value_marks import marked_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.text.tool_calls.call_format import Signature

_PARAMETER = re.compile(r"<parameter=([^>\n]*)>\n?")
_BEGIN, _END, _LAST = "<parameter=", "</parameter>", "</function>"
# The templates write these values as Python does.
_LITERALS = {"True": "true", "False": "false", "None": "null"}
# Keywords of a text, and of an object that has parameters, that are enforced or restrict nothing.
_OF_TEXT = frozenset("type enum const title description default examples format".split())
_OF_OBJECT = frozenset(
    "type properties required additionalProperties title description $defs definitions $schema "
    "x-guidance strict".split()
)


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
            body = f'"{_BEGIN}input>\\n" {text} "\\n{_END}\\n"'
            return [f"{name}: {body}", f"{text}: /{tool.input}/"]
        root = json.loads(tool.schema)
        unknown = [keyword for keyword in root if keyword not in _OF_OBJECT]
        if unknown and tool.strict:
            raise UnsupportedSchema(tool.name, unknown[0])
        required, members, rules = set(root.get("required", ())), [], []
        for number, (key, schema) in enumerate(root.get("properties", {}).items()):
            member = f"{name}_{number}"
            begin = json.dumps(f"{_BEGIN}{key}>\n", ensure_ascii=False)
            rules += [f"{member}: {begin} {member}_value", *_value(f"{member}_value", schema, tool)]
            members.append(member if key in required else f"{member}?")
        return [f"{name}: {' '.join(members) or _EMPTY}", *rules]


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


def _value(name: str, schema: Any, tool: Signature) -> list[str]:
    """The rules of a parameter's value and its end, first the rule `name`."""
    end = json.dumps(f"\n{_END}\n")
    root = json.loads(tool.schema)
    if not _may_be_text(schema, root):
        shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
        marked = marked_schema(json.dumps({**schema, **shared} if shared else schema))
        return [f"{name}: {name}_json {end}", f"{name}_json: {marked}"]
    schema = _resolved(schema, root)
    if isinstance(schema, dict) and ("enum" in schema or "const" in schema):
        texts = schema.get("enum", [schema.get("const")])
        written = [text if isinstance(text, str) else json.dumps(text) for text in texts]
        choices = " | ".join(json.dumps(text, ensure_ascii=False) for text in written)
        return [f"{name}: ({choices}) {end}"]
    unknown = [key for key in schema if key not in _OF_TEXT] if isinstance(schema, dict) else []
    if unknown and tool.strict:
        raise UnsupportedSchema(tool.name, unknown[0])
    return [f"{name}[suffix={end}]: /(.|\\n)*/"]


def _resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """A schema, or the one that it refers to in the root."""
    for _ in range(8):  # references to references
        path = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(path, str) or not path.startswith("#/"):
            return schema
        schema = root
        for key in path[2:].split("/"):
            schema = schema.get(key) if isinstance(schema, dict) else None
    return schema


def _may_be_text(schema: Any, root: Mapping[str, Any]) -> bool:
    """Whether a value can be a text, which is then written as it is."""
    schema = _resolved(schema, root)
    if not isinstance(schema, dict):
        return schema is not False
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return any(_may_be_text(part, root) for part in schema[keyword])
    if "enum" in schema or "const" in schema:
        return any(isinstance(x, str) for x in schema.get("enum", [schema.get("const")]))
    types = schema.get("type")
    if types is None:
        return not schema.keys() & {"properties", "items"}
    return "string" in (types if isinstance(types, list) else [types])


class _Arguments(ArgumentReader):
    """Parameters in XML, which are passed on as the members of an object."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        super().__init__()
        self._schema = schema
        self._began = False
        self._name: str | None = None  # of the parameter whose value is read
        self._in_text = False  # whether the value is passed on as it arrives

    @override
    def _token(self, text: str, start: int) -> tuple[str, int] | None:
        if self._name is not None:
            return self._value(self._name, text, start)
        if text[start].isspace():
            return "", start + 1
        if text.startswith(_LAST, start):
            self.ended = True
            return ("}" if self._began else "{}"), start
        found = _PARAMETER.match(text, start)
        if found and found.end() < len(text):
            return self._begin(found[1]), found.end()
        rest = text[start:]
        if found or _LAST.startswith(rest) or _BEGIN.startswith(rest) or rest.startswith(_BEGIN):
            return None
        return "", start + 1  # not what the grammar allows

    def _begin(self, name: str) -> str:
        written = f"{', ' if self._began else '{'}{json.dumps(name, ensure_ascii=False)}: "
        self._began, self._name = True, name
        schema = self._of_parameter(name)
        self._in_text = isinstance(schema, dict) and schema.get("type") == "string"
        return f'{written}"' if self._in_text else written

    def _of_parameter(self, name: str) -> Any:
        properties = self._schema.get("properties")
        schema = properties.get(name, {}) if isinstance(properties, dict) else {}
        return _resolved(schema, self._schema)

    def _value(self, name: str, text: str, start: int) -> tuple[str, int] | None:
        at = text.find(_END, start)
        if at >= 0:
            self._name = None
            value = text[start:at].removesuffix("\n")
            written = f'{_escaped(value)}"' if self._in_text else self._as_json(name, value)
            return written, at + len(_END)
        if not self._in_text:
            return None
        end = len(text) - overlap(text[start:], [f"\n{_END}", _END])
        return (_escaped(text[start:end]), end) if end > start else None

    def _as_json(self, name: str, value: str) -> str:
        """A value of another type than text; a text, if it is not JSON and can be one."""
        schema, bare = self._of_parameter(name), value.strip()
        try:
            parsed = json.loads(_LITERALS.get(bare, bare), parse_constant=_refuse_constant)
        except ValueError:
            return f'"{_escaped(value)}"'
        texts = schema.get("enum", [schema.get("const")]) if isinstance(schema, dict) else []
        return json.dumps(value if value in texts else parsed, ensure_ascii=False)


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _escaped(text: str) -> str:
    """The characters of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
