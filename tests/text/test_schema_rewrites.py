"""Keywords that llguidance lacks, against the library jsonschema-rs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.grammars.schema_negation import NoComplement, complement
from hearthd.text.grammars.schema_rewrites import rewritten
from tests.server.grammar_world import WORLDS

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACE = {"city": {"enum": ["x", "y"]}, "code": {"type": "integer", "maximum": 9, "minimum": 0}}
CLOSED = {"type": "object", "properties": PLACE, "additionalProperties": False}
THREE = {"type": "array", "items": {"enum": [1, 2, 3]}, "maxItems": 3}
ENFORCED: dict[str, dict[str, Any]] = {
    "unique": {"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": True},
    "unique, bounded": {
        "type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 9},
        "uniqueItems": True, "minItems": 2, "maxItems": 2,
    },
    "unique, contains": {**THREE, "uniqueItems": True, "contains": {"const": 3}},
    "contains": {**THREE, "contains": {"const": 3}},
    "contains, of any": {"type": "array", "contains": {"type": "boolean"}, "maxItems": 2},
    "contains, after a prefix": {
        "type": "array", "prefixItems": [{"enum": [1, 2]}], "contains": {"const": "a"},
        "maxItems": 2,
    },
    "dependentRequired": {**CLOSED, "dependentRequired": {"code": ["city"]}},
    "dependentSchemas": {
        **CLOSED,
        "dependentSchemas": {"code": {"properties": {"city": {"const": "y"}}}},
        "required": ["code"],
    },
    "dependencies": {
        **CLOSED, "dependencies": {"code": ["city"], "city": {"required": ["code"]}},
    },
    "if a value": {
        **CLOSED,
        "required": ["city"],
        "if": {"properties": {"city": {"const": "x"}}},
        "then": {"required": ["code"]},
        "else": {"properties": {"code": False}},
    },
    "if a property": {
        **CLOSED, "required": ["code"],
        "if": {"required": ["city"]},
        "then": {"properties": {"code": {"maximum": 2}}},
    },
    "if, twice": {
        **CLOSED,
        "required": ["city"],
        "allOf": [
            {"if": {"properties": {"city": {"const": "x"}}}, "then": {"required": ["code"]}},
            {"if": {"required": ["code"]}, "then": {"properties": {"code": {"minimum": 7}}}},
        ],
    },
    "not a text": {"enum": ["a", "b", 3, 4], "not": {"enum": ["a", 4]}},
    "not a text of a pattern": {
        "type": "string", "pattern": '^[xyé"\\\\]{0,2}$', "not": {"enum": ["x", "", 'é"', "\\"]},
    },
    "not a number": {"type": "integer", "minimum": 0, "maximum": 4, "not": {"enum": [1, 4]}},
    "not a type": {"not": {"type": ["string", "object", "array"]}},
    "not both properties": {**CLOSED, "not": {"required": ["city", "code"]}},
    "not an item": {**THREE, "not": {"contains": {"const": 2}}},
    "not a property's value": {
        **CLOSED, "required": ["city"],
        "not": {"properties": {"city": {"const": "x"}, "code": {"minimum": 3}}},
    },
    "no property": {**CLOSED, "not": {"anyOf": [{"required": ["city"]}, {"required": ["a"]}]}},
    "a reference": {
        "$defs": {"city": {"enum": ["x", "y"]}},
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}, "code": {"type": "null"}},
        "required": ["city"],
        "additionalProperties": False,
        "not": {"properties": {"code": False, "city": {"const": "x"}}},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ENFORCED)
def test_a_keyword_that_is_rewritten_is_enforced(name: str) -> None:
    schema = ENFORCED[name]
    validator = Draft202012Validator(schema)
    answers = set()
    for seed in range(12):
        answer = WORLDS["gemma"].answer("json_schema", json.dumps(schema), seed)
        validator.validate(json.loads(answer))
        answers.add("".join(answer.split()))
    assert len(answers) > 1


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"not": {}}, "not"),
        ({"not": {"type": "integer"}}, "not"),
        ({"type": "string", "not": {"pattern": "a"}}, "not"),
        ({"type": "object", "not": {"additionalProperties": False}}, "not"),
        ({"$defs": {"a": {"type": "null"}}, "not": {"$ref": "#/$defs/a"}}, "not"),
        ({"type": "string", "not": {"minLength": "a"}}, "not"),
        ({"type": "number", "not": {"multipleOf": 2}}, "not"),
        ({"type": "array", "not": {"const": [1]}}, "not"),
        ({"type": "string", "not": {"enum": ["a" * 2500]}}, "not"),
        ({"if": {"pattern": "a"}, "then": {"minLength": 3}}, "if"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "items": {"enum": [*range(9)]}, "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "contains": {}, "minContains": 2}, "contains"),
        ({"type": "array", "contains": {"type": "integer"}, "maxContains": 1}, "contains"),
        ({"type": "array", "minItems": "1", "contains": {}}, "contains"),
        ({"dependentRequired": {"a": 1}}, "dependentRequired"),
        (
            {**CLOSED, "allOf": [{"if": {"required": [f"p{i}"]}, "then": {"required": ["code"]}}
                                 for i in range(30)]},
            "if",
        ),
    ],
)  # fmt: skip
def test_a_use_that_cannot_be_enforced_is_rejected_by_name(schema: Any, keyword: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        WORLDS["gemma"].grammars.rules(Grammar("json_schema", json.dumps(schema)))
    assert f'"{keyword}"' in caught.value.expected
    assert caught.value.expected.endswith(", which is not supported here")


def test_names_of_properties_are_not_keywords() -> None:
    names = ("not", "if", "then", "contains", "uniqueItems", "dependentRequired", "enum", "allOf")
    schema = json.dumps({"type": "object", "properties": {name: {} for name in names}})
    assert rewritten(schema) is schema


def test_a_schema_with_an_infinite_number_is_left_alone() -> None:
    schema = '{"type": "integer", "not": {"const": 1e999}}'
    assert rewritten(schema) is schema


def test_a_rewritten_schema_has_a_bounded_size() -> None:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(30):
        schema = {"type": "array", "contains": schema}
    text = json.dumps(schema)
    assert rewritten(text) is text


names = st.sampled_from(["a", "b"])
scalars = st.sampled_from([None, True, False, 0, 1, 2, 3, 1.5, -2, "", "a", "ab", "b", "é\\", "^"])
values = st.recursive(
    scalars,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(names, parts, max_size=2),
    max_leaves=4,
)
keywords = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["null", "boolean", "number", "string", "array", "object"])}
    ),
    st.fixed_dictionaries({"enum": st.lists(scalars, min_size=1, max_size=4)}),
    st.fixed_dictionaries({"const": scalars}),
    *[
        st.fixed_dictionaries({keyword: st.integers(0, 3)})
        for keyword in (
            "minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems "
            "maxItems"
        ).split()
    ],
    st.fixed_dictionaries({"required": st.lists(names, min_size=1, max_size=2, unique=True)}),
)
schemas = st.recursive(
    keywords | st.booleans(),
    lambda parts: st.one_of(
        st.tuples(parts.filter(lambda part: isinstance(part, dict)), keywords).map(
            lambda both: {**both[0], **both[1]}
        ),
        *[
            st.fixed_dictionaries({keyword: st.lists(parts, min_size=1, max_size=2)})
            for keyword in ("anyOf", "allOf")
        ],
        st.fixed_dictionaries({"not": parts}),
        st.fixed_dictionaries({"contains": parts}),
        st.fixed_dictionaries({"properties": st.dictionaries(names, parts, max_size=2)}),
    ),
    max_leaves=5,
)


def parts_of(value: Any) -> Iterator[Any]:
    yield value
    for part in value if isinstance(value, list) else value.values():
        yield from parts_of(part) if isinstance(part, list | dict) else (part,)


@settings(max_examples=60, deadline=None)
@given(schemas, st.lists(values, min_size=1, max_size=8))
def test_a_complement_has_the_values_that_a_schema_has_not(
    schema: Any, candidates: list[Any]
) -> None:
    """The library jsonschema-rs judges both schemas."""
    cases = Draft202012Validator({"anyOf": [*complement(schema), False]})
    validator = Draft202012Validator(schema)
    for value in [*candidates, *parts_of(candidates)]:
        assert cases.is_valid(value) is not validator.is_valid(value), value


def test_a_complement_of_integers_has_whole_numbers() -> None:
    cases = complement({"enum": [1, 2, 5, 5.0, 7.5, True]}, ["integer"])
    allowed = Draft202012Validator({"anyOf": cases})
    assert [value for value in range(-1, 9) if allowed.is_valid(value)] == [-1, 0, 3, 4, 6, 7, 8]
    with pytest.raises(NoComplement):
        complement({"type": "integer"})
