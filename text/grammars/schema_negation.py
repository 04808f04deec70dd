"""The complement of a JSON Schema, for `not` and `if`, in keywords that llguidance supports.

A value fails a schema if it fails one of its keywords, and most keywords apply to one type of
value: the complement of {"type": "string", "maxLength": 3} is every other type, and strings with
a minLength of 4.
"""

from __future__ import annotations

import itertools
import string
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hearthd.text.schema_parts import Schema

# "integer" is not among them: it is a part of "number".
TYPES = ("null", "boolean", "number", "string", "array", "object")
_MAX_TEXT = 2000  # characters of the texts that a string must not equal
_MAX_VALUES = 100  # of a range of integers
_ANNOTATIONS = frozenset(
    ("$comment", "default", "deprecated", "description", "examples", "readOnly", "title",
     "writeOnly")
)  # fmt: skip


class NoComplement(ValueError):
    """The complement of a schema cannot be written."""


def complement(schema: Any, types: Iterable[str] = TYPES) -> list[Schema]:
    """Schemas such that a value of one of the types fails `schema` if it matches one of them.

    Raises NoComplement.
    """
    return [case for type_ in types for case in _of_type(schema, type_)]


def types_of(schema: Schema, inherited: Sequence[str] = TYPES) -> Sequence[str]:
    """The types of the values that a schema allows; `inherited` are those that its parent does."""
    stated = schema.get("type", inherited)
    return (stated,) if isinstance(stated, str) else tuple(stated)


def listed_values(schema: Any) -> list[Any] | None:
    """All values that a schema allows, or None if they are not listed."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    if isinstance(schema.get("enum"), list):
        return list(schema["enum"])
    least, most = schema.get("minimum"), schema.get("maximum")
    if schema.get("type") == "integer" and isinstance(least, int) and isinstance(most, int):
        return list(range(least, most + 1)) if most - least < _MAX_VALUES else None
    return [True, False] if schema.get("type") == "boolean" else None


def _of_type(schema: Any, type_: str) -> list[Schema]:
    """The complement among the values of one type."""
    if isinstance(schema, bool):
        return [] if schema else [{"type": type_}]
    if not isinstance(schema, dict):
        raise NoComplement
    cases: list[Schema] = []
    for keyword, value in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        if keyword not in _RULES:
            raise NoComplement(keyword)
        cases += _RULES[keyword](value, type_)
    return [{"type": type_, **case} for case in cases]


def _not_type(value: Any, type_: str) -> list[Schema]:
    names = [value] if isinstance(value, str) else value
    if type_ in names or (type_ == "integer" and "number" in names):
        return []
    if type_ == "number" and "integer" in names:
        raise NoComplement("a number that is not an integer")
    return [{}]


def _not_values(values: list[Any], type_: str) -> list[Schema]:
    match type_:
        case "null":
            return [] if None in values else [{}]
        case "boolean":
            others = [value for value in (False, True) if not any(value is v for v in values)]
            return [{"enum": others}] if others else []
        case "string":
            texts = sorted({value for value in values if isinstance(value, str)})
            if sum(map(len, texts)) > _MAX_TEXT:
                raise NoComplement("too many texts")
            return [{"pattern": f"^(?:{_other_texts(texts)})$"}] if texts else [{}]
        case "number" | "integer":
            return _between([value for value in values if type(value) in (int, float)], type_)
    container = list if type_ == "array" else dict
    if any(isinstance(value, container) for value in values):
        raise NoComplement("a value with parts")
    return [{}]


def _between(values: list[float], type_: str) -> list[Schema]:
    """The numbers below, between and above the values."""
    below, above = "exclusiveMinimum", "exclusiveMaximum"
    points: list[float] = sorted({*values})
    if type_ == "integer":
        points = [value for value in points if value == int(value)]
    if not points:
        return [{}]
    between = [
        {below: low, above: high}
        for low, high in itertools.pairwise(points)
        if type_ == "number" or high - low > 1
    ]
    return [{above: points[0]}, *between, {below: points[-1]}]


def _other_texts(texts: Sequence[str]) -> str:
    """A regex for all texts but these, which are sorted."""
    starts = sorted({text[0] for text in texts if text})
    longer = [_escaped(start) + _group(_tails(texts, start)) for start in starts]
    other = f"[^{''.join(map(_escaped, starts))}]" if starts else r"[\s\S]"
    return "|".join([*([] if "" in texts else [""]), rf"{other}[\s\S]*", *longer])


def _tails(texts: Sequence[str], start: str) -> list[str]:
    return [text[1:] for text in texts if text.startswith(start)]


def _group(tails: Sequence[str]) -> str:
    return f"(?:{_other_texts(tails)})"


def _escaped(character: str) -> str:
    known = character in string.ascii_letters + string.digits
    return character if known else rf"\U{ord(character):08x}"


def _not_required(names: Any, type_: str) -> list[Schema]:
    return [{"properties": {name: False}} for name in names] if type_ == "object" else []


def _not_properties(properties: Any, type_: str) -> list[Schema]:
    if type_ != "object":
        return []
    cases = {name: complement(subschema) for name, subschema in properties.items()}
    return [
        {"required": [name], "properties": {name: {"anyOf": failing}}}
        for name, failing in cases.items()
        if failing
    ]


def _not_contains(subschema: Any, type_: str) -> list[Schema]:
    if type_ != "array":
        return []
    failing = complement(subschema)
    return [{"items": {"anyOf": failing}} if failing else {"maxItems": 0}]


def _not_any(parts: Any, type_: str) -> list[Schema]:
    cases = [_of_type(subschema, type_) for subschema in parts]
    return [{"allOf": [{"anyOf": case} for case in cases]}] if all(cases) else []


def _limit(types: tuple[str, ...], opposite: str, step: int = 0) -> Callable[[Any, str], list[Any]]:
    """A rule for a limit of values of these types, whose complement is the opposite limit."""

    def rule(value: Any, type_: str) -> list[Schema]:
        if type_ not in types or (step and value + step < 0):
            return []
        return [{opposite: value + step}]

    return rule


_NUMBERS, _TEXTS, _LISTS = ("number", "integer"), ("string",), ("array",)
_RULES: dict[str, Callable[[Any, str], list[Schema]]] = {
    "type": _not_type,
    "const": lambda value, type_: _not_values([value], type_),
    "enum": _not_values,
    "minimum": _limit(_NUMBERS, "exclusiveMaximum"),
    "maximum": _limit(_NUMBERS, "exclusiveMinimum"),
    "exclusiveMinimum": _limit(_NUMBERS, "maximum"),
    "exclusiveMaximum": _limit(_NUMBERS, "minimum"),
    "minLength": _limit(_TEXTS, "maxLength", -1),
    "maxLength": _limit(_TEXTS, "minLength", 1),
    "minItems": _limit(_LISTS, "maxItems", -1),
    "maxItems": _limit(_LISTS, "minItems", 1),
    "required": _not_required,
    "properties": _not_properties,
    "contains": _not_contains,
    "anyOf": _not_any,
    "allOf": lambda parts, type_: [
        case for subschema in parts for case in _of_type(subschema, type_)
    ],
    "not": lambda subschema, _: [{"allOf": [subschema]}],
}
