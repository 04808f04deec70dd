"""Tool calls in XML: each parameter is between tags.

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
templates of the models. Qwen3-Coder, Qwen3.5 and Nemotron 3 have these tags; GLM, MiniMax, DeepSeek
V3.2, MiniCPM5 and Seed-OSS have others.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.text.text_overlap import overlap
from hearthd.text.tool_calls.arguments import ArgumentReader, JsonArguments
from hearthd.text.tool_calls.call_format import NAME, SPACE, CallFormat
from hearthd.text.tool_calls.parameter_schemas import (
    KINDS,
    alternatives,
    kind,
    kinds,
    listed,
    objects,
    parameter,
)
from hearthd.text.tool_calls.xml_rules import EMPTY, ParameterRules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.text.tool_calls.call_format import Signature

# The templates write these values as Python does.
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_MAX_LITERAL = 100_000  # characters of a value that is read as Python's


@dataclass(frozen=True, kw_only=True)
class Tags:
    """The texts around parameters.

    begin  before a name
    named  between a name and a value, with the JSON types of the values that follow
    end    after a value
    wraps  around a value in which `end` may be; None if there are none
    last   after the last parameter
    """

    begin: str
    named: tuple[tuple[str, frozenset[str]], ...]
    end: str
    wraps: tuple[str, str] | None = None
    last: str

    @property
    def has_lines(self) -> bool:
        """Whether a value has its own lines, so that its end is a line."""
        return self.named[0][0].endswith("\n") and self.end.startswith("\n")

    @property
    def value_end(self) -> str:
        """The text that ends a value where it occurs first."""
        return self.end if self.has_lines else self.end.strip()

    @functools.cached_property
    def beginning(self) -> re.Pattern[str]:
        """What is before a value: `name`, `named`, and the line break before a value on lines."""
        begin, other = re.escape(self.begin), re.escape(self.named[0][0][0])
        named = "|".join(_spaced(text) for text, _ in self.named)
        line = r"\n?" if self.has_lines else ""
        return re.compile(rf"{begin}(?P<name>[^{other}\n]*)(?P<named>{named}){line}")

    def kinds_after(self, named: str) -> frozenset[str]:
        """The JSON types of the values that follow a text after a name."""
        squeezed = "".join(named.split())
        return next(known for text, known in self.named if "".join(text.split()) == squeezed)


def _spaced(text: str) -> str:
    """A pattern of a text, with any white space where it has some inside."""
    return r"\s*".join(re.escape(part) for part in text.split())


@dataclass(frozen=True, kw_only=True)
class XmlCalls(CallFormat):
    """Calls whose arguments are elements of XML, each with a marker of its own or all in one."""

    tags: Tags

    @override
    def arguments(self, schema: Mapping[str, Any]) -> ArgumentReader:
        return _Arguments(self.tags, schema)

    @override
    def written_arguments(self, arguments: Mapping[str, Any]) -> str:
        tags, texts = self.tags, []
        for key, value in arguments.items():
            named = next(named for named, known in tags.named if kind(value) in known)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            wrap, wrapped = tags.wraps or ("", "")
            texts.append(f"{tags.begin}{key}{named}{wrap}{text}{wrapped}{tags.end}")
        return "".join(texts)

    @override
    def argument_rules(
        self, name: str, tool: Signature, quote: Callable[[str], str]
    ) -> Sequence[str]:
        rules = ParameterRules(self.tags, tool, functools.partial(self.quoted, quote=quote))
        if tool.input is not None:
            return rules.text_input(name)
        choices = objects(rules.given)
        if len(choices) == 1:
            return rules.parameters(name, choices[0])
        names = [f"{name}_of_{number}" for number in range(len(choices))]
        return [
            f"{name}: {' | '.join(names) or EMPTY}",
            *(
                rule
                for each, choice in zip(names, choices, strict=True)
                for rule in rules.parameters(each, choice)
            ),
        ]


XML = XmlCalls(
    marker="<tool_call>",
    opening=(SPACE,),
    head=("<function=", NAME, ">"),
    middle=(SPACE,),
    tail=(SPACE, "</function>"),
    closing=(SPACE, "</tool_call>"),
    special=("<tool_call>", "</tool_call>"),
    json_texts=False,
    tags=Tags(
        begin="<parameter=",
        named=((">\n", KINDS),),
        end="\n</parameter>\n",
        last="</function>",
    ),
)


class _Arguments(ArgumentReader):
    """Parameters in XML, which are passed on as the members of an object."""

    def __init__(self, tags: Tags, schema: Mapping[str, Any]) -> None:
        super().__init__()
        self._tags = tags
        self._schema = schema
        self._began = False
        self._reading = False  # whether a value is read
        self._end = ""  # of the value
        self._kinds: frozenset[str] = frozenset()  # its JSON types by the schema
        self._listed: list[Any] = []  # values by the schema
        self._in_text = False  # whether the value is passed on as it arrives
        self._may_wrap = False  # whether the value may begin with a wrap

    @override
    def _token(self, text: str, start: int) -> tuple[str, int] | None:
        if self._reading:
            return self._value(text, start)
        if text[start].isspace():
            return "", start + 1
        tags = self._tags
        if text.startswith(tags.last, start):
            self.ended = True
            return ("}" if self._began else "{}"), start
        found = tags.beginning.match(text, start)
        if found and found.end() < len(text):
            on_line = tags.has_lines and found[0].endswith("\n")
            self._end = tags.end if on_line else tags.end.strip()
            return self._begin(found["name"], found["named"]), found.end()
        rest = text[start:]
        begins = tags.begin.startswith(rest) or rest.startswith(tags.begin)
        if found or begins or tags.last.startswith(rest):
            return None
        return "", start + 1  # not what the grammar allows

    def _begin(self, name: str, named: str) -> str:
        written = f"{', ' if self._began else '{'}{json.dumps(name, ensure_ascii=False)}: "
        self._began = self._reading = True
        self._may_wrap = self._tags.wraps is not None
        choices = list(alternatives(parameter(name, self._schema), self._schema))
        known = self._tags.kinds_after(named)
        self._kinds = frozenset().union(*map(kinds, choices)) & known or known
        self._listed = [value for choice in choices for value in listed(choice) or ()]
        self._in_text = self._kinds == {"string"}
        return f'{written}"' if self._in_text else written

    def _value(self, text: str, start: int) -> tuple[str, int] | None:
        if self._may_wrap and self._tags.wraps:
            wrap, wrapped = self._tags.wraps
            if wrap.startswith(text[start : start + len(wrap)]) and len(text) - start < len(wrap):
                return None
            self._may_wrap = False
            if text.startswith(wrap, start):
                self._end = wrapped + self._end
                return "", start + len(wrap)
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
        if kind_ is None and not may_be_text:
            bare = _from_python(bare)
            kind_ = _kind(bare)
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


def _from_python(text: str) -> str:
    """A value of Python as JSON, as some templates write it; other texts are unchanged."""
    if len(text) > _MAX_LITERAL or not text.startswith(("[", "{")):
        return text
    try:
        return json.dumps(ast.literal_eval(text), ensure_ascii=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def _escaped(text: str) -> str:
    """The characters of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
