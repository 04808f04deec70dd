"""JSON Schema keywords that llguidance lacks, in terms of those that it has.

not                 the cases in which a keyword of the schema fails: see schema_negation.py
if, then, else      the values that match `if` and `then`, and those that match neither
uniqueItems         of an array of known values: the arrays without repetition
contains            the item that matches is the first, or the second, and so on
dependentRequired   the property is absent, or those that it requires are present;
                    dependentSchemas and dependencies likewise

A keyword that cannot be written so stays, and is rejected by name. A result can allow less than the
schema: `contains` looks at the first items only.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any

from hearthd.text.grammars.schema_negation import (
    TYPES,
    NoComplement,
    complement,
    listed_values,
    types_of,
)
from hearthd.text.schema_parts import LISTS, MAPS, PARTS, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_ARRAYS = 400  # without repetition
_MAX_POSITIONS = 8  # of the item that matches `contains`
_MAX_SIZE = 10_000  # schemas and listed values in the result
_SAME_VALUE = frozenset(("allOf", "anyOf", "oneOf"))  # of parts that apply to the value itself


def rewritten(schema: str) -> str:
    """The schema, as JSON, without the keywords above where possible."""
    try:
        value = json.loads(schema)
        result = _Rewriter().rewrite(value, TYPES)
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError):
        # The schema is malformed, too large or too deep, which llguidance reports.
        return schema
    changed = isinstance(result, dict) and result != value
    return json.dumps(result, ensure_ascii=False) if changed else schema


class _Rewriter:
    """Rewrites a schema from the outside to the inside, and measures the result."""

    def __init__(self) -> None:
        self._size = 0

    def rewrite(self, schema: Any, types: Sequence[str]) -> Any:
        """The schema of a value of one of the types; raises ValueError if it is too large."""
        if not isinstance(schema, dict):
            return schema
        types = types_of(schema, types)
        for rule in _RULES:
            result = rule(schema, types)
            if isinstance(result, bool):
                return result
            schema = result
        self._size += 1 + len(schema.get("enum", ()))
        if self._size > _MAX_SIZE:
            raise ValueError("the schema is too large")
        return {key: self._part(key, value, types) for key, value in schema.items()}

    def _part(self, key: str, value: Any, types: Sequence[str]) -> Any:
        types = types if key in _SAME_VALUE else TYPES
        if key in LISTS and isinstance(value, list):
            return [self.rewrite(item, types) for item in value]
        if key in MAPS and isinstance(value, dict):
            return {name: self.rewrite(item, types) for name, item in value.items()}
        return self.rewrite(value, types) if key in PARTS else value


def _without(schema: Schema, *keys: str) -> Schema:
    return {key: value for key, value in schema.items() if key not in keys}


def _also(schema: Schema, *parts: Schema) -> Schema:
    """A schema whose values match the parts, too. It keeps its `$defs`, to which parts refer."""
    return {**schema, "allOf": [*schema.get("allOf", ()), *parts]}


def _negated(schema: Schema, types: Sequence[str]) -> Schema | bool:
    if "not" not in schema:
        return schema
    try:
        cases = complement(schema["not"], types)
    except NoComplement:
        return schema
    return _also(_without(schema, "not"), {"anyOf": cases}) if cases else False


def _conditional(schema: Schema, types: Sequence[str]) -> Schema:
    rest = _without(schema, "if", "then", "else")
    if "if" not in schema or not schema.keys() & {"then", "else"}:
        return rest
    try:
        others = complement(schema["if"], types)
    except NoComplement:
        return schema
    cases: list[Schema] = [{"allOf": [schema["if"], schema.get("then", True)]}]
    if others:
        cases.append({"allOf": [{"anyOf": others}, schema.get("else", True)]})
    return _also(rest, {"anyOf": cases})


def _unique(schema: Schema, types: Sequence[str]) -> Schema:
    if "uniqueItems" not in schema:
        return schema
    rest = _without(schema, "uniqueItems")
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if schema["uniqueItems"] is False or (most is not None and most < 2):
        return rest
    values = listed_values(schema.get("items"))
    if tuple(types) != ("array",) or values is None or len(values) > _MAX_ARRAYS:
        return schema
    if schema.keys() & {"const", "enum", "prefixItems"}:
        return schema
    lengths = range(least, min(len(values) if most is None else most, len(values)) + 1)
    if not 0 < sum(math.perm(len(values), length) for length in lengths) <= _MAX_ARRAYS:
        return schema
    arrays = [[*item] for length in lengths for item in itertools.permutations(values, length)]
    return {**_without(rest, "items", "minItems", "maxItems"), "enum": arrays}


def _contains(schema: Schema, types: Sequence[str]) -> Schema:
    if "contains" not in schema or tuple(types) != ("array",):
        return schema
    if "maxContains" in schema or schema.get("minContains", 1) != 1:
        return schema
    positions = min(schema.get("maxItems", _MAX_POSITIONS), _MAX_POSITIONS)
    cases = [
        {"prefixItems": [*[True] * position, schema["contains"]], "minItems": position + 1}
        for position in range(positions)
    ]
    return _also(_without(schema, "contains", "minContains"), {"anyOf": cases}) if cases else schema


def _dependent(schema: Schema, _: Sequence[str]) -> Schema:
    keywords = ("dependentRequired", "dependentSchemas", "dependencies")
    for keyword in keywords:
        if keyword in schema:
            parts = [_if_present(name, dependency) for name, dependency in schema[keyword].items()]
            schema = _also(_without(schema, keyword), *parts)
    return schema


def _if_present(name: str, dependency: Any) -> Schema:
    """An object has this property not, or matches a schema or has other properties."""
    present = {"required": [name]}
    then = (
        {"required": [name, *dependency]}
        if isinstance(dependency, list)
        else {"allOf": [present, dependency]}
    )
    return {"anyOf": [{"properties": {name: False}}, then]}


_RULES = (_negated, _conditional, _unique, _contains, _dependent)
