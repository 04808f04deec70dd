"""JSON Schema keywords that llguidance lacks, in terms of those that it has.

uniqueItems         of an array of few known values: the arrays without repetition
contains            the item that matches is the first, or the second, and so on
dependentRequired   the property is absent, or those that it requires are present
if, then, else      on the value of one property with known values: the cases

A keyword that cannot be written so stays, and is rejected by name. A result can allow less than the
schema: `contains` looks at the first items only.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

_MAX_VALUES = 4  # of a set: 65 arrays
_MAX_POSITIONS = 8  # of the item that matches `contains`
_MAX_CASES = 4  # of properties with `dependentRequired`


def rewritten(schema: str) -> str:
    """The schema, as JSON, without the keywords above where possible."""
    try:
        value, changed = _rewrite(json.loads(schema))
    except (AttributeError, RecursionError, TypeError, ValueError):
        # The schema is malformed or too deep, which llguidance reports.
        return schema
    return json.dumps(value, ensure_ascii=False) if changed else schema


def _rewrite(schema: Any) -> tuple[Any, bool]:
    """The schema, and whether it was changed.

    Nothing is rewritten around a part that was: each rewrite repeats the parts of its schema.
    """
    if isinstance(schema, list):
        parts = [_rewrite(part) for part in schema]
        return [part for part, _ in parts], any(changed for _, changed in parts)
    if not isinstance(schema, dict):
        return schema, False
    pairs = {
        key: (part, False) if key in ("enum", "const", "default", "examples") else _rewrite(part)
        for key, part in schema.items()
    }
    schema = {key: part for key, (part, _) in pairs.items()}
    if any(changed for _, changed in pairs.values()):
        return schema, True
    for rule in (_unique, _contains, _dependent, _conditional):
        if (result := rule(schema)) is not schema:
            return result, True
    return schema, False


def _without(schema: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: part for key, part in schema.items() if key not in keys}


def _values(schema: Any) -> list[Any] | None:
    """All values that a schema allows, or None if they are not listed."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    if isinstance(schema.get("enum"), list):
        return list(schema["enum"])
    return [True, False] if schema.get("type") == "boolean" else None


def _is_one(value: Any, values: list[Any]) -> bool:
    return any(value == other and type(value) is type(other) for other in values)


def _unique(schema: dict[str, Any]) -> dict[str, Any]:
    if "uniqueItems" not in schema:
        return schema
    rest = _without(schema, "uniqueItems")
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if schema["uniqueItems"] is False or (most is not None and most < 2):
        return rest
    values = _values(schema.get("items"))
    if schema.get("type") != "array" or values is None or len(values) > _MAX_VALUES:
        return schema
    most = len(values) if most is None else min(most, len(values))
    arrays = [
        list(array)
        for length in range(least, most + 1)
        for array in itertools.permutations(values, length)
    ]
    return {"enum": arrays} if arrays else schema


def _contains(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") != "array" or schema.get("minContains", 1) != 1:
        return schema
    if "contains" not in schema or "maxContains" in schema or "prefixItems" in schema:
        return schema
    items, match = schema.get("items", {}), schema["contains"]
    positions = min(schema.get("maxItems", _MAX_POSITIONS), _MAX_POSITIONS)
    rest = _without(schema, "contains", "minContains")
    required_item = {"allOf": [items, match]} if items not in ({}, True) else match
    cases = [
        {
            **rest,
            "prefixItems": [*[items] * place, required_item],
            "minItems": max(schema.get("minItems", 0), place + 1),
        }
        for place in range(positions)
    ]
    return {"anyOf": cases} if cases else schema


def _dependent(schema: dict[str, Any]) -> dict[str, Any]:
    rules = schema.get("dependentRequired")
    properties = schema.get("properties", {})
    if not isinstance(rules, dict) or len(rules) > _MAX_CASES or schema.get("type") != "object":
        return schema
    if not all(isinstance(others, list) for others in rules.values()):
        return schema
    cases = [_without(schema, "dependentRequired")]
    for name, others in rules.items():
        if name not in properties or any(other not in properties for other in others):
            return schema
        more = []
        for case in cases:
            required = case.get("required", [])
            if name not in required:
                more.append({**case, "properties": {**case["properties"], name: False}})
            more.append({**case, "required": list(dict.fromkeys([*required, name, *others]))})
        cases = more
    return {"anyOf": cases}


def _conditional(schema: dict[str, Any]) -> dict[str, Any]:
    """`if` one property has one of some values, out of those that it can have."""
    condition = schema.get("if")
    if not isinstance(condition, dict) or schema.get("type") != "object":
        return schema
    tested = condition.get("properties")
    if not isinstance(tested, dict) or len(tested) != 1 or set(condition) - {
        "properties", "required", "type",
    }:  # fmt: skip
        return schema
    ((name, test),) = tested.items()
    possible = _values(schema.get("properties", {}).get(name))
    values = _values(test)
    # An absent property passes `if` without `required`: only a required one has two cases.
    if possible is None or values is None or name not in schema.get("required", ()):
        return schema
    rest = _without(schema, "if", "then", "else")
    cases = []
    for branch, chosen in (
        ("then", [value for value in possible if _is_one(value, values)]),
        ("else", [value for value in possible if not _is_one(value, values)]),
    ):
        if chosen:
            case = {**rest, "properties": {**rest["properties"], name: {"enum": chosen}}}
            if (more := schema.get(branch, True)) is not True:
                case["allOf"] = [*case.get("allOf", ()), more]
            cases.append(case)
    return {"anyOf": cases}
