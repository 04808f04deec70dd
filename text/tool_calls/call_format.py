"""Tool calls, and the forms in which models write them.

A form is a sequence of texts around the name and the arguments of each call. Both the grammar of
calls and their reader follow from it.
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from hearthd.text.tool_calls.arguments import JsonArguments
from hearthd.text.value_marks import marked_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.text.tool_calls.arguments import ArgumentReader


@dataclass(frozen=True, kw_only=True)
class CallDelta:
    """More of a tool call by the model.

    index      position of the call in the answer, from 0
    name       of the tool, in the first delta of a call; empty in the others
    arguments  more of the arguments; the joined arguments of a complete call are a JSON object
    complete   whether this is the end of the call
    """

    index: int
    name: str = ""
    arguments: str = ""
    complete: bool = False


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A tool that a call may name.

    schema  the JSON Schema of its arguments, as text that llguidance can compile
    input   a regular expression of the text that is the only argument, `input`, as the format
            writes texts; None if the schema says everything
    strict  whether a keyword that cannot be enforced is an error
    """

    name: str
    schema: str
    input: str | None = None
    strict: bool = False


class UnsupportedSchema(ValueError):
    """The format cannot enforce a keyword in the schema of `tool`, which is strict."""

    def __init__(self, tool: str, keyword: str) -> None:
        super().__init__(f"the model's form of tool calls cannot enforce {keyword}")
        self.tool = tool


class Variable(enum.Enum):
    """An element of a form that is not a fixed text."""

    SPACE = "white space, or none"
    NAME = "the name of a tool"
    REST_OF_HEADER = "what is left of the header of a message, <|message|> included"
    ID = "the id of a call"
    NUMBER = "the number of a call"


SPACE, NAME, REST_OF_HEADER = Variable.SPACE, Variable.NAME, Variable.REST_OF_HEADER
ID, NUMBER = Variable.ID, Variable.NUMBER
# Elements in a tuple of their own may be absent.
Elements: TypeAlias = "tuple[str | Variable | Elements, ...]"


@dataclass(frozen=True, kw_only=True)
class CallFormat:
    """How a model writes tool calls: `opening`, calls with `separator` between them, `closing`.

    A call is `head`, `middle`, its arguments and `tail`.

    marker      text in front of `opening`; with `optional_marker` it may be absent
    separator   None if each call has its own marker
    between     elements between two calls with markers of their own
    response    the elements before the JSON string that an answer without calls consists of, and
                those after it; None if such an answer is any text
    only_first  whether calls can only be the beginning of an answer
    special     names of special tokens that are part of a call and must appear in the text
    stop        strings that end the answer: the model waits for the tool's result
    id_length   number of letters and digits of a call's id, if the chat template requires one
    json_texts  whether texts in arguments are JSON strings
    """

    marker: str
    optional_marker: bool = False
    opening: Elements = ()
    head: Elements
    middle: Elements
    tail: Elements = ()
    separator: Elements | None = None
    between: Elements = (SPACE,)
    closing: Elements = ()
    response: tuple[Elements, Elements] | None = None
    only_first: bool = False
    special: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    id_length: int | None = None
    json_texts: bool = True

    @property
    def starts(self) -> tuple[str, ...]:
        """The texts that begin calls."""
        return (self.marker, "{") if self.optional_marker else (self.marker,)

    @property
    def heads(self) -> tuple[Elements, ...]:
        """The forms of what follows a marker, through the name of a call."""
        return ((*self.opening, *self.head),)

    @property
    def trigger(self) -> bytes:
        """A regular expression of text in which a call has begun, from its group `call`.

        With `only_first` it matches from the beginning of an answer.
        """
        marker = re.escape(self.marker.encode())
        if not self.optional_marker:
            return b"(?P<call>%s)" % marker
        name = self.head.index(NAME)
        head = b"".join(
            rb"\s*" if element is SPACE else re.escape(str(element).encode())
            for element in self.head[:name]
        )
        return rb"\s*(?P<call>(%s)?%s)" % (marker, head)

    def arguments(self, _schema: Mapping[str, Any]) -> ArgumentReader:
        """A reader of the arguments of a call, by their JSON Schema."""
        return JsonArguments()

    def quoted(self, text: str, quote: Callable[[str], str]) -> str:
        """The terminals of a text in which the names of `special` tokens may be."""
        names = "|".join(map(re.escape, self.special))
        parts = re.split(f"({names})", text) if names else [text]
        return " ".join(quote(part) for part in parts if part)

    def written(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        """Calls as a model writes them, by their names and arguments, without ids."""
        texts = [
            _written((*self.head, *self.middle), name)
            + self.written_arguments(arguments)
            + _written(self.tail)
            for name, arguments in calls
        ]
        begin, end = self.marker + _written(self.opening), _written(self.closing)
        if self.separator is None:
            return "\n".join(f"{begin}{text}{end}" for text in texts)
        return f"{begin}{_written(self.separator).join(texts)}{end}"

    def written_arguments(self, arguments: Mapping[str, Any]) -> str:
        """The arguments of a call as a model writes them."""
        return json.dumps(arguments, ensure_ascii=False)

    def argument_rules(
        self, name: str, tool: Signature, _quote: Callable[[str], str]
    ) -> Sequence[str]:
        """The rules of a tool's arguments, first the rule `name`; raises UnsupportedSchema."""
        if tool.input is None:
            return [f"{name}: {marked_schema(tool.schema)}"]
        text = name.upper()
        return [
            rf'{name}: "{{" SPACE? "\"input\"" SPACE? ":" SPACE? {text} SPACE? "}}"',
            f'{text}: /"{tool.input}"/',
        ]

    def lark(
        self, tools: Sequence[Signature], quote: Callable[[str], str], *, parallel: bool
    ) -> str:
        """The rule `calls` in llguidance's variant of Lark: one call, or several if `parallel`.

        `quote` makes a terminal of a text, which may be the name of a special token. Raises
        UnsupportedSchema.
        """

        def written(elements: Elements, name: str = "") -> str:
            return " ".join(
                f"({written(element, name)})?"
                if isinstance(element, tuple)
                else _TERMINALS[element]
                if element in _TERMINALS
                else self.quoted(name if element is NAME else str(element), quote)
                for element in elements
            )

        marker = self.quoted(self.marker, quote)
        group = [f"{marker}?" if self.optional_marker else marker, written(self.opening), "call"]
        if self.separator is not None and parallel:
            group.append(f"({written(self.separator)} call)*")
        several = self.separator is None and parallel and not self.only_first
        rules = [
            f"calls: group ({written(self.between)} group)*" if several else "calls: group",
            f"group: {' '.join([*group, written(self.closing)])}",
            "call: " + " | ".join(f"call_{number}" for number in range(len(tools))),
            r"SPACE: /[ \t\n]{1,8}/",
            f"CALL_ID: /[A-Za-z0-9_-]{{{self.id_length or '1,40'}}}/",
            "CALL_NUMBER: /[0-9]{1,3}/",
        ]
        for number, tool in enumerate(tools):
            arguments = f"arguments_{number}"
            begin, end = written(self.head + self.middle, tool.name), written(self.tail)
            rules.append(f"call_{number}: {begin} {arguments} {end}")
            rules += self.argument_rules(arguments, tool, quote)
        if self.response:
            before, after = self.response
            text = '%json {"type": "string"}'
            # The string's first quote is in `before` for the reader, which finds the text after it.
            rules.append(f"response: {written(before[:-1])} text {written(after)}")
            rules.append(f"text: {text}")
        return "\n".join(rules)


@dataclass(frozen=True, kw_only=True)
class Match:
    """Elements found in a text, up to `end`, with the name among them."""

    end: int
    name: str = ""


def _written(elements: Elements, name: str = "") -> str:
    """The text of elements, with the white space of json.dumps."""
    text = ""
    for element in elements:
        if element is SPACE:
            text += " " if text.endswith((",", ":")) else ""
        elif element is NAME:
            text += name
        elif isinstance(element, str):
            text += element
    return text


_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_SPACES = re.compile(r"[ \t\r\n]*")
_HEADER = re.compile(r"(?s:.)*?<\|message\|>")
_ID = re.compile(r"[A-Za-z0-9_-]*")
_NUMBER = re.compile(r"[0-9]*")
_PATTERNS = {
    SPACE: _SPACES, NAME: _NAME, REST_OF_HEADER: _HEADER, ID: _ID, NUMBER: _NUMBER
}  # fmt: skip
# An element at the end of a text could go on; white space matters only before another element.
_GROWING = (NAME, ID, NUMBER)
_TERMINALS: dict[Any, str] = {SPACE: "SPACE?", ID: "CALL_ID", NUMBER: "CALL_NUMBER"}


def match(elements: Elements, text: str, start: int = 0) -> Match | None:
    """Find elements at a position; None if the text does not have them.

    Raises IncompleteText if more text decides.
    """
    position, name = start, ""
    for element in elements:
        if isinstance(element, tuple):
            inner = match(element, text, position)
            position = inner.end if inner else position
        elif isinstance(element, Variable):
            found = _PATTERNS[element].match(text, position)
            if found is None:
                raise IncompleteText
            position, name = found.end(), found[0] if element is NAME else name
            if element in _GROWING and position == len(text):
                raise IncompleteText
        elif text.startswith(element, position):
            position += len(element)
        elif element.startswith(text[position:]):
            raise IncompleteText
        else:
            return None
    return Match(end=position, name=name)


class IncompleteText(Exception):
    """More text decides whether a text has the elements of a form."""
