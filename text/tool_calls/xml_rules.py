"""The grammar of parameters in XML."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any

from hearthd.text.tool_calls.call_format import UnsupportedSchema
from hearthd.text.tool_calls.parameter_schemas import KINDS, alternatives, kind, kinds, listed
from hearthd.text.value_marks import marked_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.text.tool_calls.call_format import Signature
    from hearthd.text.tool_calls.xml_calls import Tags

EMPTY = '""'
# Keywords of a text, and of an object that has parameters, that are enforced or restrict nothing.
_OF_TEXT = frozenset("type enum const title description default examples format".split())
_OF_OBJECT = frozenset(
    "type properties required additionalProperties title description $defs definitions $schema "
    "x-guidance strict".split()
)
# Keywords of the root that hold for the schemas of parameters.
_SHARED = ("$defs", "definitions", "x-guidance")


class ParameterRules:
    """Makes the rules of the parameters of a tool; `quoted` makes terminals of a text."""

    def __init__(self, tags: Tags, tool: Signature, quoted: Callable[[str], str]) -> None:
        self._tags = tags
        self._tool = tool
        self._quoted = quoted
        self.given: dict[str, Any] = json.loads(tool.schema)
        self._end = quoted(tags.value_end)
        # White space after a value is a part of the end of one on lines alone.
        self._after = "" if tags.has_lines or not tags.end[-1].isspace() else " SPACE?"
        self._suffix = json.dumps(tags.value_end, ensure_ascii=False)

    @property
    def _ends_with_token(self) -> bool:
        """Whether a special token ends a value: none can be a part of a text."""
        return self._end.startswith("<[")

    def _begin(self, key: str, named: str) -> str:
        return self._quoted(f"{self._tags.begin}{key}{named}")

    def text_input(self, name: str) -> list[str]:
        """The rules of the parameter `input`, which matches a regular expression."""
        text, end = name.upper(), self._tags.value_end
        named = next(named for named, known in self._tags.named if "string" in known)
        begin = f"{name}: {self._begin('input', named)}"
        if self._ends_with_token:
            return [f"{begin} {text}? {self._end}{self._after}", f"{text}: /{self._tool.input}/"]
        # The end occurs first after the text, also if the text has the beginning of an end.
        borders = [size for size in range(1, len(end)) if end.endswith(end[:size])]
        begun = "|".join(_pattern(end[:-size]) for size in borders)
        earlier = rf"{_pattern(end)}(.|\n)*" + (f"|{begun}" if begun else "")
        return [
            f"{begin} {text}_AND_END{self._after}",
            # In one terminal, so that the text does not take the end for more of itself.
            f"{text}_AND_END: {text} {self._suffix}",
            rf"{text}: /{self._tool.input}/ & ~/(.|\n)*({earlier})/",
        ]

    def parameters(self, name: str, root: Mapping[str, Any]) -> list[str]:
        """The rules of the parameters of an object schema without alternatives, first `name`."""
        others = root.get("additionalProperties", True)
        unknown = [keyword for keyword in root if keyword not in _OF_OBJECT]
        if "additionalProperties" in root and others is not False:
            unknown.append("additionalProperties")
        if unknown and self._tool.strict:
            raise UnsupportedSchema(self._tool.name, unknown[0])
        required, members, rules = set(root.get("required", ())), [], []
        for number, (key, schema) in enumerate(root.get("properties", {}).items()):
            if self._tags.named[0][0][0] in key or "\n" in key:
                raise UnsupportedSchema(self._tool.name, f"the name {json.dumps(key)}")
            member = f"{name}_{number}"
            of_member = self._member(member, schema, functools.partial(self._begin, key))
            if of_member:
                rules += of_member
                members.append(member if key in required else f"{member}?")
        if others is not False or "patternProperties" in root:
            rules += self._member(f"{name}_any", others, self._any_begin)
            members.append(f"{name}_any*")
        return [f"{name}: {' '.join(members) or EMPTY}", *rules]

    def _any_begin(self, named: str) -> str:
        """The terminals of a parameter of any name, up to its value."""
        begin, other = self._tags.begin, re.escape(self._tags.named[0][0][0])
        if "<[" not in self._quoted(begin) + self._quoted(named):
            return rf"/{_pattern(begin)}[^{other}\n]+{_pattern(named)}/"
        return rf"{self._quoted(begin)} /[^{other}\n]+/ {self._quoted(named)}"

    def _member(self, name: str, schema: Any, begin: Callable[[str], str]) -> list[str]:
        """The rules of one parameter, first the rule `name`; none for no value."""
        choices, rules = [], []
        several = len(self._tags.named) > 1
        for number, (named, known) in enumerate(self._tags.named):
            value_name = f"{name}_value_{number}" if several else f"{name}_value"
            value = self._value(value_name, schema, known)
            if value:
                choices.append(f"{begin(named)} {value_name}")
                rules += value
        return [f"{name}: {' | '.join(choices)}", *rules] if choices else []

    def _value(self, name: str, schema: Any, known: frozenset[str]) -> list[str]:
        """The rules of a value of known types and its end, first the rule `name`; or none."""
        values: list[Any] = []
        texts, others = [], []
        choices = list(alternatives(schema, self.given))
        for choice in choices:
            if (of_choice := listed(choice)) is not None:
                values += [value for value in of_choice if kind(value) in known]
            elif "string" in kinds(choice) & known:
                texts.append(choice)
            elif both := kinds(choice) & known:
                others.append(choice if known == KINDS else {**choice, "type": sorted(both)})
        if texts:
            unknown = [key for choice in choices for key in choice if key not in _OF_TEXT]
            # A text beside them can look like another number.
            unknown += ["enum" for value in values if not isinstance(value, str | None)]
            if unknown and self._tool.strict:
                raise UnsupportedSchema(self._tool.name, unknown[0])
            return self._text(name)
        written = [value if isinstance(value, str) else json.dumps(value) for value in values]
        end = self._tags.value_end
        if any((text + end).index(end) < len(text) for text in written):
            raise UnsupportedSchema(self._tool.name, f"a text with {end.strip()}")
        bodies = [json.dumps(text, ensure_ascii=False) for text in written]
        rules = []
        if others:
            bodies.append(f"{name}_json")
            shared = {key: self.given[key] for key in _SHARED if key in self.given}
            json_schema = {**(others[0] if len(others) == 1 else {"anyOf": others}), **shared}
            rules.append(f"{name}_json: {marked_schema(json.dumps(json_schema))}")
        end = self._end + self._after
        return [f"{name}: ({' | '.join(bodies)}) {end}", *rules] if bodies else []

    def _text(self, name: str) -> list[str]:
        """The rules of any text and its end, first the rule `name`."""
        if self._ends_with_token:
            text = name.upper()
            return [f"{name}: {text}? {self._end}{self._after}", rf"{text}: /(.|\n)*/"]
        if self._tags.wraps is None:
            if not self._after:
                return [rf"{name}[suffix={self._suffix}]: /(.|\n)*/"]
            return [
                f"{name}: {name}_text{self._after}",
                rf"{name}_text[suffix={self._suffix}]: /(.|\n)*/",
            ]
        before, after = self._tags.wraps
        return [
            f"{name}: ({self._quoted(before)} {name}_wrapped | {name}_bare){self._after}",
            rf"{name}_wrapped[suffix={json.dumps(after + self._tags.value_end)}]: /(.|\n)*/",
            rf"{name}_bare[suffix={self._suffix}]: /([^{re.escape(before[0])}](.|\n)*)?/",
        ]


def _pattern(text: str) -> str:
    """A regular expression of a text, as a part of one between slashes."""
    return re.escape(text).replace("\\\n", r"\n").replace("\n", r"\n").replace("/", r"\/")
