"""What the JSON Schema of a call's arguments says about each parameter.

For formats that write texts as they are: there, the schema tells a text from JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.text.schema_parts import target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hearthd.text.schema_parts import Schema

KINDS = frozenset("string number integer boolean null array object".split())


def resolved(schema: Any, root: Mapping[str, Any], seen: set[str] | None = None) -> Schema | None:
    """A schema with the keywords of its `$ref` and `allOf`, whose schemas are in `root`.

    `allOf` remains if it has several parts. None if no value matches, or if a reference is in
    `seen`, which gets the references that are followed.
    """
    seen = set() if seen is None else seen
    if not isinstance(schema, dict):
        return None if schema is False else {}
    found = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
    parts = schema.get("allOf")
    parts = list(parts) if isinstance(parts, list) else []
    if len(parts) > 1:
        found["allOf"] = parts
    if isinstance(reference := schema.get("$ref"), str):
        if reference in seen:
            return None
        seen.add(reference)
        parts.append(target(dict(root), reference))
    for part in parts:
        found = _merged(resolved(part, root, seen) or {}, found)
    return found


def _merged(schema: Schema, other: Schema) -> Schema:
    """The keywords of two schemas, with the properties of both; the second one's come first."""
    merged = {**schema, **other}
    for key in ("properties", "required"):
        before, after = schema.get(key), other.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            merged[key] = {**before, **after}
        elif isinstance(before, list) and isinstance(after, list):
            merged[key] = [*before, *after]
    return merged


def alternatives(
    schema: Any, root: Mapping[str, Any], seen: set[str] | None = None
) -> Iterator[Schema]:
    """Schemas without `$ref`, `anyOf` and `oneOf`: a value matches at least one of them."""
    seen = set() if seen is None else seen
    found = resolved(schema, root, seen)
    if found is None:
        return
    keyword = next((key for key in ("anyOf", "oneOf") if isinstance(found.get(key), list)), None)
    if keyword is None:
        yield found
        return
    shared = {key: value for key, value in found.items() if key != keyword}
    for part in found[keyword]:
        if isinstance(part, dict):
            yield from alternatives(_merged(shared, part), root, seen)
        elif part is not False:
            yield shared


def objects(root: Mapping[str, Any]) -> list[Schema]:
    """The alternatives of the schema of a call's arguments, which are an object."""
    return [
        {**choice, "type": "object"}
        for choice in alternatives(root, root)
        if "object" in kinds(choice)
    ]


def listed(alternative: Schema) -> Sequence[Any] | None:
    """The values that an alternative lists, or None."""
    if "const" in alternative:
        return [alternative["const"]]
    values = alternative.get("enum")
    if not isinstance(values, list):
        return None
    types = _types(alternative)
    return [value for value in values if kind(value) in types]


def kinds(alternative: Schema) -> frozenset[str]:
    """The JSON types of the values that match; `number` stands for a fraction."""
    values = listed(alternative)
    return _types(alternative) if values is None else frozenset(map(kind, values))


def _types(alternative: Schema) -> frozenset[str]:
    types = alternative.get("type")
    if types is None:
        implied = {"properties": "object", "items": "array"}
        return frozenset(implied[key] for key in implied if key in alternative) or KINDS
    types = types if isinstance(types, list) else [types]
    known = frozenset(type_ for type_ in types if isinstance(type_, str)) & KINDS
    return (known | {"integer"} if "number" in known else known) or KINDS


def kind(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    names = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def parameter(name: str, root: Mapping[str, Any]) -> Schema:
    """The schema of the parameter `name` of an object that matches `root`."""
    found = []
    for alternative in alternatives(root, root):
        properties, others = (alternative.get(k) for k in ("properties", "additionalProperties"))
        if isinstance(properties, dict) and name in properties:
            found.append(properties[name])
        elif isinstance(others, dict):
            found.append(others)
    return {"anyOf": found} if found else {}
