"""Numbers and objects of schemas: what llguidance rounds or leaves open."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.grammars.schema_dialect import InexactSchema, translated_schema
from tests.server.grammar_world import WORLDS, accepts

LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
large = st.sampled_from([0, 10**6, 2**32, 2**53, 2**54, 10**17, 10**18, 2**63, 2**64, 10**25])
integers = st.tuples(large, st.integers(-3, 3), st.sampled_from([1, -1])).map(
    lambda at: (at[0] + at[1]) * at[2]
)
values = integers | st.sampled_from(
    [0.1, -0.0, 1.0, -1.5, 1e-7, 1e20, 1e22, 0.1 + 0.2, 123456789.123456789, -2.5e-5]
)


def rejection(schema: Any) -> str:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(InvalidRequest) as caught:
        WORLDS["gemma"].grammars.rules(Grammar("json_schema", text, "the.field"))
    assert caught.value.field == "the.field"
    return caught.value.expected


@settings(max_examples=25, deadline=None)
@given(values, st.booleans(), st.integers(0, 99))
def test_a_listed_number_is_exact_or_rejected(value: float, const: bool, seed: int) -> None:
    schema = {"const": value} if const else {"enum": [value, value]}
    try:
        answer = WORLDS["gemma"].answer("json_schema", json.dumps(schema), seed)
    except InvalidRequest as error:
        reason = error.expected
    else:
        assert json.loads(answer) == value
        assert isinstance(value, float) or answer == str(value)
        return
    assert reason.startswith("a number that a double of at most 15 digits equals,")
    assert float(value) != value or abs(value) >= 2**63 or len(repr(value)) > 17


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["integer", "number"]), st.sampled_from(LIMITS), integers)
def test_a_limit_is_exact_or_rejected(type_: str, keyword: str, limit: int) -> None:
    schema = {"type": type_, keyword: limit}
    validator = jsonschema_rs.Draft202012Validator(schema)
    try:
        for value in (*range(limit - 2, limit + 3), 5, -5):
            assert accepts("json_schema", json.dumps(schema), str(value)) is (
                validator.is_valid(value)
            ), value
    except InvalidRequest as error:
        reason = error.expected
    else:
        return
    assert abs(limit) > 2**53 - 4
    assert f"at {keyword}" in reason or "range" in reason


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"const": 2**53 + 1}, "const"),
        ({"$defs": {"a": {"enum": [1, {"k": [2**53 + 1]}]}}}, "$defs.a.enum"),
        ({"anyOf": [True, {"minimum": 2**63}]}, "anyOf[1].minimum"),
        ({"items": {"type": "integer", "exclusiveMinimum": 2**53}}, "items.exclusiveMinimum"),
        ({"x": {"y": {"maximum": 2**53 + 1}}, "$ref": "#/x/y"}, "#/x/y.maximum"),
        ({"properties": {"a": {"multipleOf": 1.0000000000000002}}}, "properties.a.multipleOf"),
        ({"multipleOf": 2**53 + 1}, "multipleOf"),
        ({"multipleOf": 0}, "multipleOf"),
        ({"multipleOf": 10**400}, "multipleOf"),
        # Nine digits took all memory, and so did three numbers of three digits.
        ({"multipleOf": 999_999_937}, "multipleOf"),
        ({"multipleOf": 0.99991}, "multipleOf"),
        ({"multipleOf": 5 * 10**8}, "multipleOf"),
        ({"allOf": [{"multipleOf": 97}, {"multipleOf": 991}]}, "allOf[0].multipleOf"),
        ({"anyOf": [{"multipleOf": 991}, {"multipleOf": 997}]}, "anyOf[0].multipleOf"),
        ({"const": 123456789.12345679}, "const"),
        ({"type": "number", "maximum": 123456789.12345679}, "maximum"),
        ('{"const": 1e400}', "const"),
        ('{"minimum": -1e400}', "minimum"),
        ({"const": 10**400}, "const"),
        # It ended the process, and so did equal limits.
        ({"const": -(2**63)}, "const"),
        ({"minimum": -(2**63), "maximum": -(2**63)}, "minimum"),
    ],
)
def test_an_inexact_number_is_rejected_with_its_path(schema: Any, path: str) -> None:
    assert rejection(schema).endswith(f" at {path}")


def test_a_schema_in_a_lark_grammar_is_exact_too() -> None:
    grammar = 'start: "x" %json {"properties": {"a": {"pattern": "^[[a]]$"}}, "type": "object"}'
    assert accepts("lark", grammar, 'x{"a":"a]"}')
    assert not accepts("lark", grammar, 'x{"a":"a"}')
    factors = 'start: "x" %json {"multipleOf": 991} | %json {"multipleOf": 997}'
    with pytest.raises(InvalidRequest, match="at multipleOf"):
        accepts("lark", factors, "1")
    with pytest.raises(InvalidRequest, match="at const"):
        accepts("lark", 'start: %json\n{"const": -9223372036854775808}', "1")


@pytest.mark.parametrize("factors", [[9999], [0.25, 5, 0.5, 20], [7 * 10**7, 0.01], [5] * 50])
def test_common_multiples_with_few_digits_are_read(factors: list[float]) -> None:
    members = {f"k{at}": {"type": "number", "multipleOf": x} for at, x in enumerate(factors)}
    schema = json.dumps({"type": "object", "properties": members})
    assert accepts("json_schema", schema, json.dumps({"k0": 3 * factors[0]}, separators=(",", ":")))
    assert not accepts("json_schema", schema, '{"k0":0.001}')


def test_counts_are_integers_that_an_answer_can_reach() -> None:
    three = json.dumps({"type": "string", "minLength": 1.0, "maxLength": 3.0})
    assert [accepts("json_schema", three, f'"{"a" * n}"') for n in range(5)] == [
        False, True, True, True, False,
    ]  # fmt: skip
    for keyword, answer in {"maxLength": '"ab"', "maxItems": "[1,2]"}.items():
        for limit in (2**31, 2**53 + 1, 2**64):
            schema = {"type": ["string", "array"], keyword: limit}
            assert accepts("json_schema", json.dumps(schema), answer)


def thing(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


NUMBER = {"type": "integer"}
NAMED = {"$defs": {"A": {**thing(a=NUMBER), "required": ["a"]}}}
A = {"$ref": "#/$defs/A"}
CLOSED: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "plain": (thing(a=NUMBER), ["{}", '{"a":1}'], ['{"b":1}', '{"a":1,"a":1}', '{"a":1,"b":1}']),
    "without properties": (thing(), ["{}"], ['{"a":1}']),
    "nested": (thing(a=thing(b=NUMBER)), ['{"a":{"b":1}}'], ['{"a":{"c":1}}']),
    "items": ({"items": thing(b=NUMBER)}, ['[{"b":1}]', "5"], ['[{"c":1}]']),
    "values": (
        {"type": "object", "additionalProperties": thing(b=NUMBER)},
        ['{"k":{"b":1}}'], ['{"k":{"c":1}}'],
    ),
    "not stated to be an object": ({"properties": {"a": NUMBER}}, ['{"a":1}', "5"], ['{"b":1}']),
    "allOf": (
        {"allOf": [thing(a=NUMBER), thing(b=NUMBER)]},
        ['{"a":1,"b":1}', '{"b":1}'], ['{"a":1,"c":1}', '{"a":"x"}'],
    ),
    "allOf of one": (
        {**NAMED, **thing(x={"allOf": [A], "title": "X"})}, ['{"x":{"a":1}}'],
        ['{"x":{"a":1,"b":1}}'],
    ),
    "a base and its heir": (
        {**NAMED, **thing(x=A, y={"allOf": [A, thing(b=NUMBER)]})},
        ['{"x":{"a":1},"y":{"a":1,"b":2}}', '{"y":{"a":1}}'],
        ['{"x":{"a":1,"b":2}}', '{"y":{"a":1,"c":2}}', '{"y":{"b":1}}'],
    ),
    "beside a reference": (
        {**NAMED, **A, "properties": {"b": NUMBER}}, ['{"a":1,"b":2}'], ['{"a":1,"c":2}'],
    ),
    "alternatives": (
        {**NAMED, "anyOf": [A, thing(c=NUMBER), {"type": "null"}]},
        ['{"a":1}', '{"c":1}', "null"], ['{"a":1,"c":1}', '{"d":1}'],
    ),
    "alternatives by a constant": (
        {
            "oneOf": [
                {**thing(k={"const": k}, **{k: NUMBER}), "required": ["k"]} for k in ("x", "y")
            ]
        },
        ['{"k":"x","x":1}', '{"k":"y"}'], ['{"k":"y","x":1}'],
    ),
    "alternatives and more": (
        {**thing(k=NUMBER), "anyOf": [thing(a=NUMBER), thing(b=NUMBER)]},
        ['{"k":1,"a":1}', '{"b":1}'], ['{"a":1,"b":1}', '{"c":1}'],
    ),
    "alternatives of what is required": (
        {**thing(a=NUMBER, b=NUMBER), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['{"a":1}', '{"a":1,"b":1}', '{"b":1}'], ["{}", '{"a":1,"c":1}'],
    ),
    "required and not listed": (
        {**thing(a=NUMBER), "required": ["b"]}, ['{"b":[]}', '{"a":1,"b":1}'],
        ['{"a":1}', '{"b":1,"c":1}'],
    ),
    "patternProperties": (
        {**thing(a=NUMBER), "patternProperties": {"^x": NUMBER}}, ['{"a":1,"x1":2}'], ['{"y":1}'],
    ),
    "recursive": (
        {
            "$defs": {"N": thing(next={"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]})},
            "$ref": "#/$defs/N",
        },
        ['{"next":{"next":null}}'], ['{"next":{"z":1}}', '{"z":1}'],
    ),
    "the root in itself": (
        thing(c={"type": "array", "items": {"$ref": "#"}}), ['{"c":[{"c":[]}]}'],
        ['{"c":[{"d":1}]}'],
    ),
    "if": (
        {
            **thing(k={"enum": ["x", "y"]}), "required": ["k"],
            "if": {"properties": {"k": {"const": "x"}}},
            "then": {"properties": {"e": NUMBER}, "required": ["e"]},
        },
        ['{"k":"x","e":1}', '{"k":"y"}'], ['{"k":"x"}', '{"k":"y","z":1}'],
    ),
    "dependentRequired": (
        {**thing(a=NUMBER), "dependentRequired": {"a": ["b"]}}, ['{"a":1,"b":2}', "{}"],
        ['{"a":1}', '{"c":1}'],
    ),
    "not": (
        {**thing(a=NUMBER), "not": {"properties": {"a": {"const": 1}}, "required": ["a"]}},
        ['{"a":2}', "{}"], ['{"a":1}', '{"b":1}'],
    ),
    "one value in two schemas": (
        {"allOf": [thing(x=thing(p=NUMBER)), thing(x=thing(q=NUMBER))]},
        ['{"x":{"p":1,"q":2}}'], ['{"y":1}'],
    ),
    "elsewhere in the document": (
        {"components": {"A": thing(a=NUMBER)}, "$ref": "#/components/A"}, ['{"a":1}'], ['{"b":1}'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_an_object_has_the_listed_properties_only(name: str) -> None:
    schema, possible, impossible = CLOSED[name]
    validator = jsonschema_rs.Draft202012Validator(schema)
    for answer in possible:
        validator.validate(json.loads(answer))
        assert accepts("json_schema", json.dumps(schema), answer), answer
    for answer in impossible:
        assert not accepts("json_schema", json.dumps(schema), answer), answer


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {},
        {**thing(a=NUMBER), "additionalProperties": True},
        {**thing(a=NUMBER), "additionalProperties": {}},
        {"allOf": [thing(a=NUMBER), {**thing(c=NUMBER), "additionalProperties": True}]},
        {**thing(a=NUMBER), "required": ["a"], "minProperties": 2},
    ],
)
def test_an_object_is_open_if_its_schema_says_so(schema: dict[str, Any]) -> None:
    assert accepts("json_schema", json.dumps(schema), '{"a":1,"b":2}')


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(CLOSED)), st.integers(0, 2**32 - 1))
def test_answers_of_closed_objects_are_valid(name: str, seed: int) -> None:
    schema = CLOSED[name][0]
    answer = WORLDS["gemma"].answer("json_schema", json.dumps(schema), seed)
    jsonschema_rs.Draft202012Validator(schema).validate(json.loads(answer))


@pytest.mark.parametrize("keyword", ["allOf", "anyOf"])
def test_a_schema_whose_references_double_often_is_rejected(keyword: str) -> None:
    levels = {
        f"a{level}": {keyword: [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(14)
    }
    text = json.dumps({"$ref": "#/$defs/a0", "$defs": levels | {"a14": {"type": "object"}}})
    with pytest.raises(InexactSchema, match="fewer combinations"):
        translated_schema(text)


def test_hundreds_of_schemas_of_an_object_are_closed() -> None:
    branches = [{"type": "object", "properties": {f"p{index}": {}}} for index in range(500)]
    closed = json.loads(translated_schema(json.dumps({"anyOf": branches})))
    assert all(branch["additionalProperties"] is False for branch in closed["anyOf"])


@pytest.mark.parametrize("type_", [None, True, 5, 0.5, {}, [None], "xobject"])
def test_a_type_that_is_not_valid_is_rejected_by_name(type_: Any) -> None:
    assert "type" in rejection({"type": type_, "properties": {"a": {}}})
