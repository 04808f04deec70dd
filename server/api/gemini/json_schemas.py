"""Gemini's schemas, a selection of OpenAPI 3.0's, as JSON Schemas.

Clients such as Gemini CLI write Gemini's types into JSON Schemas, too.
"""

from typing import Any

from pydantic.alias_generators import to_snake

_COUNTS = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
_OBJECTS_OF_SCHEMAS = {
    "properties", "patternProperties", "dependentSchemas", "$defs", "definitions",
}  # fmt: skip
_LISTS_OF_SCHEMAS = {"anyOf", "allOf", "oneOf", "prefixItems"}
_SCHEMAS = {
    "items", "contains", "additionalProperties", "not", "if", "then", "else",
}  # fmt: skip
# `format` names the range of a number, or says that a text has an `enum`: the type and `enum` do.
_REDUNDANT_FORMATS = {"enum", "int32", "int64", "float", "double"}
_WITHOUT_MEANING = {"example", "propertyOrdering", "nullable"}
_KEYWORDS = (*_COUNTS, *_OBJECTS_OF_SCHEMAS, *_LISTS_OF_SCHEMAS, *_SCHEMAS, "propertyOrdering")
_RENAMED = {to_snake(name): name for name in _KEYWORDS} | {"defs": "$defs", "ref": "$ref"}


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a schema in either form."""
    named = {_RENAMED.get(name, name): value for name, value in schema.items()}
    converted: dict[str, Any] = {}
    for name, value in named.items():
        if value is None or name in _WITHOUT_MEANING or _is_redundant(name, value):
            continue
        converted[name] = _converted(name, value)
    if isinstance(order := named.get("propertyOrdering"), list) and "properties" in converted:
        converted["properties"] = _ordered(converted["properties"], order)
    return _nullable(converted) if named.get("nullable") is True else converted


def _converted(name: str, value: Any) -> Any:
    """The value of a keyword."""
    if name == "type":
        return [*map(_type, value)] if isinstance(value, list) else _type(value)
    if name in _COUNTS and isinstance(value, str) and value.isdecimal():
        return int(value)  # 64-bit integers are texts in the JSON of Google's servers
    if name in _OBJECTS_OF_SCHEMAS and isinstance(value, dict):
        return {key: _schema(item) for key, item in value.items()}
    if name in _LISTS_OF_SCHEMAS and isinstance(value, list):
        return [_schema(item) for item in value]
    return _schema(value) if name in _SCHEMAS else value


def _schema(value: Any) -> Any:
    return json_schema(value) if isinstance(value, dict) else value


def _type(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _is_redundant(name: str, value: object) -> bool:
    if name == "type":
        return value == "TYPE_UNSPECIFIED"
    return name == "format" and isinstance(value, str) and value in _REDUNDANT_FORMATS


def _ordered(properties: Any, order: list[Any]) -> Any:
    """The properties in this order, and then the others."""
    if not isinstance(properties, dict):
        return properties
    names = dict.fromkeys([*(name for name in order if isinstance(name, str)), *properties])
    return {name: properties[name] for name in names if name in properties}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or null."""
    if not isinstance(schema.get("type"), str):
        return {"anyOf": [schema, {"type": "null"}]}
    values = {"enum": [*schema["enum"], None]} if isinstance(schema.get("enum"), list) else {}
    return {**schema, "type": [schema["type"], "null"], **values}
