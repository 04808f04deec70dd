"""Close the objects of a JSON Schema that lists properties, unless it says what others may be.

JSON Schema allows any other property where `additionalProperties` is absent, and a model that may
invent properties does so without end. So, as in llama-server, an object then has the properties
that are listed. Several schemas can describe one object: those in `allOf`, behind a `$ref` beside
other keywords, under a condition, or in alternatives. Then each alternative has its own properties
and the properties of the schemas around it.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hearthd.text.schema_parts import Schema, target

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_VISITS = 10_000  # of schemas, in a second: references can lead to 2**n
_CONDITIONS = ("if", "then", "else")
_DEPENDENT = ("dependentSchemas", "dependencies", "dependentRequired")
_COMBINED = ("allOf", "anyOf", "oneOf")
_LISTING = ("properties", "patternProperties")
# Keywords that, beside a $ref, describe the same object as it does.
_ABOUT_OBJECTS = frozenset(
    (*_LISTING, "additionalProperties", "required", "minProperties", *_COMBINED, *_CONDITIONS,
     *_DEPENDENT)
)  # fmt: skip


@dataclass(frozen=True)
class _Members:
    """The properties of an object that several schemas describe.

    names      the properties, in order
    objects    how many of the schemas say which properties the value of a property has
    patterns   of the names of further properties
    listed     whether a schema lists properties
    open       whether a schema says what other properties may be
    """

    names: tuple[str, ...] = ()
    objects: Counter[str] = field(default_factory=Counter)
    patterns: tuple[str, ...] = ()
    listed: bool = False
    open: bool = False

    def __add__(self, other: _Members) -> _Members:
        """The members of two schemas that apply together."""
        return self._joined(other, self.objects + other.objects)

    def __or__(self, other: _Members) -> _Members:
        """The members of two alternative schemas."""
        return self._joined(other, self.objects | other.objects)

    def _joined(self, other: _Members, objects: Counter[str]) -> _Members:
        return _Members(
            tuple(dict.fromkeys(self.names + other.names)),
            objects,
            tuple(dict.fromkeys(self.patterns + other.patterns)),
            self.listed or other.listed,
            self.open or other.open,
        )


_NOTHING = _Members()


class TooManySchemas(ValueError):
    """References or combinations lead to too many schemas of the same objects."""


def close_objects(root: Schema) -> None:
    """Close the objects of a schema, in place; raises TooManySchemas."""
    _Closer(root).close()


class _Closer:
    """Closes each schema that describes a whole value.

    A schema that a `$ref` names is closed, too. Where it adds to another schema it must stay open:
    there the `$ref` names an open copy.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._original = copy.deepcopy(root)
        self._copies: dict[str, str] = {}
        self._seen: set[int] = set()
        self._visits = 0
        self._pending: list[Schema] = [root]

    def close(self) -> None:
        """Close the root and every schema of a value in it."""
        while self._pending:
            schema = self._pending.pop()
            if id(schema) not in self._seen:
                self._seen.add(id(schema))
                self._close(schema, _NOTHING)

    def _close(self, schema: Schema, around: _Members) -> None:
        """Close a schema of a value that schemas with the members `around` describe, too."""
        keywords = schema.keys() & {"$ref", *_ABOUT_OBJECTS}
        added = _schemas(schema, "allOf")
        if around == _NOTHING and keywords == {"$ref"}:
            self._pending += [found] if (found := target(self._root, schema["$ref"])) else []
            return
        if around == _NOTHING and keywords == {"allOf"} and len(added) == 1:
            self._close(added[0], around)
            return
        members = around + self._together(schema, frozenset())
        branches = _alternatives(schema)
        inside = self._one_of(branches, frozenset())
        shared = {name for name, count in (members.objects + inside.objects).items() if count > 1}
        self._keep_open(schema, shared)
        for branch in branches:
            self._close(branch, members)
        if not branches and members.listed and not members.open:
            _add_members(schema, members)

    def _keep_open(self, schema: Schema, shared: set[str]) -> None:
        """Close the values in a schema, but not its object or the values of `shared` properties."""
        values = [
            subschema
            for name, subschema in _mapping(schema, "properties").items()
            if name not in shared
        ]
        items = schema.get("items")
        values += [
            *_mapping(schema, "patternProperties").values(),
            *_schemas(schema, "prefixItems"),
        ]
        values += [schema.get("additionalProperties"), *(items if type(items) is list else [items])]
        self._pending += [value for value in values if isinstance(value, dict)]
        self._open_reference(schema, shared)
        for subschema in _schemas(schema, "allOf"):
            self._keep_open(subschema, shared)
            for branch in _alternatives(subschema):
                self._keep_open(branch, shared)
        for subschema in _conditional(schema):
            self._open_reference(subschema, shared)

    def _open_reference(self, schema: Schema, shared: set[str]) -> None:
        """Let the `$ref` of a schema name an open copy."""
        reference = schema.get("$ref")
        found = target(self._original, reference)
        if found is None:
            return
        if reference not in self._copies:
            definitions = self._root.setdefault("$defs", {})
            name = f"open_{len(self._copies)}"
            while name in definitions:
                name += "_"
            self._copies[str(reference)] = f"#/$defs/{name}"
            definitions[name] = copy.deepcopy(found)
            self._keep_open(definitions[name], shared)
            for branch in _alternatives(definitions[name]):
                self._keep_open(branch, shared)
        schema["$ref"] = self._copies[str(reference)]

    def _together(self, schema: Schema, seen: frozenset[str]) -> _Members:
        """The members of a schema, and of schemas that apply with it."""
        self._visits += 1
        if self._visits > _MAX_VISITS:
            raise TooManySchemas
        members = _own_members(schema)
        reference = schema.get("$ref")
        found = target(self._original, reference)
        if found is not None and reference not in seen:
            members += self._all(found, seen | {str(reference)})
        for subschema in (*_schemas(schema, "allOf"), *_conditional(schema)):
            members += self._all(subschema, seen)
        return members

    def _all(self, schema: Schema, seen: frozenset[str]) -> _Members:
        return self._together(schema, seen) + self._one_of(_alternatives(schema), seen)

    def _one_of(self, branches: Iterable[Schema], seen: frozenset[str]) -> _Members:
        members = _NOTHING
        for branch in branches:
            members |= self._all(branch, seen)
        return members


def _own_members(schema: Schema) -> _Members:
    properties = _mapping(schema, "properties")
    required = schema.get("required")
    names = [*properties, *(required if isinstance(required, list) else ())]
    for keyword in _DEPENDENT:
        for name, needed in _mapping(schema, keyword).items():
            names += [name, *(needed if isinstance(needed, list) else ())]
    describing = {"$ref", *_LISTING, *_COMBINED, *_CONDITIONS}
    return _Members(
        tuple(dict.fromkeys(map(str, names))),
        Counter(
            name
            for name, subschema in properties.items()
            if isinstance(subschema, dict) and subschema.keys() & describing
        ),
        tuple(_mapping(schema, "patternProperties")),
        listed=any(keyword in schema for keyword in _LISTING),
        open="additionalProperties" in schema
        or schema.get("unevaluatedProperties", False) is not False,
    )


def _mapping(schema: Schema, keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _schemas(schema: Schema, keyword: str) -> list[Schema]:
    value = schema.get(keyword)
    return (
        [subschema for subschema in value if isinstance(subschema, dict)]
        if isinstance(value, list)
        else []
    )


def _alternatives(schema: Schema) -> list[Schema]:
    return [*_schemas(schema, "anyOf"), *_schemas(schema, "oneOf")]


def _conditional(schema: Schema) -> list[Schema]:
    """Schemas that apply under a condition. They stay as they are, with all that is in them."""
    parts = [schema.get(keyword) for keyword in _CONDITIONS]
    for keyword in _DEPENDENT:
        parts += _mapping(schema, keyword).values()
    return [subschema for subschema in parts if isinstance(subschema, dict)]


def _add_members(schema: Schema, members: _Members) -> None:
    """Allow these members and no others, unless that would allow no object."""
    types, least = schema.get("type", "object"), schema.get("minProperties", 0)
    possible = isinstance(least, int) and (members.patterns or least <= len(members.names))
    types = types if isinstance(types, list) else [types]
    if schema.keys() & {"const", "enum"} or "object" not in types or not possible:
        return
    properties, patterns = _mapping(schema, "properties"), _mapping(schema, "patternProperties")
    schema["properties"] = properties | dict.fromkeys(members.names, True) | properties
    if members.patterns:
        schema["patternProperties"] = dict.fromkeys(members.patterns, True) | patterns
    schema["additionalProperties"] = False
