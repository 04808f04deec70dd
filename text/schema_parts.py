"""Where a JSON Schema holds other schemas."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]

PARTS = frozenset(
    ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
     "unevaluatedItems", "unevaluatedProperties")
)  # fmt: skip
LISTS = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
MAPS = frozenset(
    ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
)


def parts_of(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The schemas in a schema that are objects, each with its path (`anyOf[1]`)."""
    for key, value in schema.items():
        if key in LISTS and isinstance(value, list):
            members = [(f"{key}[{index}]", item) for index, item in enumerate(value)]
        elif key in MAPS and isinstance(value, dict):
            members = [(f"{key}.{name}", item) for name, item in value.items()]
        else:
            members = [(key, value)] if key in PARTS else []
        yield from ((path, item) for path, item in members if isinstance(item, dict))


def target(root: Schema, reference: Any) -> Schema | None:
    """The schema in this document that a `$ref` names by its place, or None."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found: Any = root
    for name in urllib.parse.unquote(reference).split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = found[int(key)] if key.isdecimal() and int(key) < len(found) else None
        else:
            found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
