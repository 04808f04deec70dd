"""Tool calls in XML: which parameters a schema allows, and how the reader tells texts from JSON."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.tool_calls.call_filter import CallFilter
from hearthd.text.tool_calls.tools import Tool, ToolUse
from hearthd.text.tool_calls.xml_calls import XML
from tests.server.fakes import byte_level
from tests.server.grammar_world import World

WORLD = World(byte_level(special=["<end>"]))
BEGIN, END = "<tool_call>\n<function=f>\n", "</function>\n</tool_call>"


def tool(schema: Any, **fields: Any) -> Tool:
    return Tool(name="f", parameters=json.dumps(schema), field="tools[0].parameters", **fields)


def allowed(used: Tool, body: str) -> bool:
    """Whether the grammar allows a call with these parameters, and nothing after it."""
    tools = ToolUse(format=XML, tools=(used,), required=True, parallel=False)
    rules = WORLD.constraint(tools, None)
    for token in WORLD.tokenizer.read(f"{BEGIN}{body}{END}", special=False):
        mask = rules.allowed()
        if mask is None or not mask[token]:
            return False
        rules.accept(token)
    mask = rules.allowed()
    return mask is not None and bool(mask[list(WORLD.ends)].any())


def arguments(schema: Any, body: str, cuts: tuple[int, ...] = ()) -> str:
    """The arguments of a call whose text comes in pieces, cut at these places."""
    call_filter = CallFilter(XML, {"f": schema})
    text = f"{BEGIN}{body}{END}"
    places = sorted({0, len(text), *(cut % len(text) for cut in cuts)})
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    parts = [part for piece in pieces for part in call_filter.push(piece)]
    assert not call_filter.open
    return "".join(delta.arguments for part in parts for delta in part.calls)


def parameter(name: str, value: str) -> str:
    return f"<parameter={name}>\n{value}\n</parameter>\n"


NODE = {
    "type": "object", "required": ["v"], "additionalProperties": False,
    "properties": {"v": {"type": "string"}, "next": {"$ref": "#/$defs/a~1b"}},
}  # fmt: skip
RECURSIVE = {"$ref": "#/$defs/a~1b", "$defs": {"a/b": NODE}}
V, W = parameter("v", "x"), parameter("w", "5")
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
REFUSED = {"type": "object", "required": ["v"], "not": {}, "properties": {"v": {"type": "string"}}}
OPEN = {**NODE, "properties": {"v": {"type": "string"}}, "additionalProperties": True}
EITHER = {"anyOf": [{"properties": {"v": {}}}, {"properties": {"w": {"type": "string"}}}]}
_CLOSED = {"additionalProperties": False}
ONE_OF_TWO = {"anyOf": [{**_CLOSED, "properties": {k: {}}, "required": [k]} for k in "vw"]}
AT_LEAST_ONE = {
    **_CLOSED,
    "type": "object",
    "properties": {"v": {}, "w": {}},
    "oneOf": [{"required": ["v"]}, {"required": ["w"]}, {"type": "null"}],
}
INVALID = {"required": ["v"], "properties": {"v": {"type": "objct"}}}


@pytest.mark.parametrize(
    ("schema", "bodies", "refused"),
    [
        (RECURSIVE, [V, V + parameter("next", '{"v":"y"}')], ["", W]),
        ({"allOf": [{"$ref": "#/$defs/a~1b"}], "$defs": RECURSIVE["$defs"]}, [V], ["", W]),
        ({**RECURSIVE, "$defs": {"a/b": INVALID}}, [V], ["", W]),
        (TEXTS, ["", V, V + W], ["x"]),
        ({"type": "object"}, ["", V + W], ["x"]),
        (EITHER, ["", V, W], ["x"]),
        (ONE_OF_TWO, [V, W], ["", V + W, parameter("x", "5")]),
        ({"$ref": "#/$defs/a", "$defs": {"a": ONE_OF_TWO}}, [V, W], ["", V + W]),
        (AT_LEAST_ONE, [V, W, V + W], ["", parameter("x", "5")]),
        (OPEN, [V, V + W], ["", W]),
        (REFUSED, [V], ["", W]),
        (INVALID, [V], ["", W]),
        ({"type": "object", "properties": {}}, [""], [V]),
        ({"properties": {"v": False, "w": {}}, "$defs": {"a": {}}}, ["", W], [V]),
    ],
)
def test_a_call_has_the_parameters_of_the_schema(
    schema: Any, bodies: list[str], refused: list[str]
) -> None:
    assert [body for body in [*bodies, *refused] if allowed(tool(schema), body)] == bodies


@pytest.mark.parametrize("others", [{"type": "string"}, True])
def test_a_strict_object_has_no_other_parameters(others: Any) -> None:
    schema = {"type": "object", "properties": {"v": {}}, "additionalProperties": others}
    with pytest.raises(InvalidRequest, match="cannot enforce additionalProperties"):
        allowed(tool(schema, strict=True), V)
    assert allowed(tool(RECURSIVE, strict=True), V)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"a>b": {}}, "a>b"),
        ({"a\nb": {"type": "string"}}, "the name"),
        ({"a": {"enum": ["x\n</parameter>\ny"]}}, "a text with </parameter>"),
    ],
)
def test_what_the_form_cannot_write_is_refused(properties: Any, reason: str, strict: bool) -> None:
    got = "a strict tool" if strict else "a tool"
    with pytest.raises(InvalidRequest, match=f'got "{got}".*{reason}'):
        allowed(tool({"properties": properties}, strict=strict), "")


ENDS = [
    "a</parameter>\n<parameter=u>\nevil",
    "</parameter>\n<parameter=u>\nevil",
    "",
    "\n",
    "a\n</parameter> \n</parameter",
]


@pytest.mark.parametrize("value", ENDS)
@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": ["string", "null"]}])
@settings(max_examples=20)
@given(cuts=st.tuples(st.integers(0, 200), st.integers(0, 200)))
def test_a_text_ends_where_the_grammar_ends_it(
    schema: Any, value: str, cuts: tuple[int, int]
) -> None:
    schema = {"properties": {"t": schema, "u": {"type": "string"}}}
    body = parameter("t", value)
    assert json.loads(arguments(schema, body, cuts)) == {"t": value}


def test_the_grammar_ends_a_text_at_its_first_end() -> None:
    used = tool({"properties": {"t": {"type": "string"}}, "required": ["t"]})
    assert [allowed(used, parameter("t", value)) for value in ENDS] == [True] * len(ENDS)
    assert not allowed(used, parameter("t", "a\n</parameter>\nb"))
    custom = Tool(name="f", input=Grammar("regex", r"[a-z<>/\n]*"))
    cases = {"a</parameter>b": True, "\n": True, "": True}
    cases |= {"a\n</parameter>\nb": False, "a\n</parameter>": False}
    for value, valid in cases.items():
        assert allowed(custom, parameter("input", value)) is valid, value


LOOP = {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "string"}, {"type": "null"}]}
DEFS = {"loop": LOOP, "a/b": {"$ref": "#/$defs/c~0d"}, "c~d": {"type": "string"}}
HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": ["string", "null"]}, "12345", '"12345"'),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": ["string", "integer"]}, "5", "5"),
        ({"type": ["string", "integer"]}, "5.5", '"5.5"'),
        ({"type": ["string", "null"]}, '"x"', r'"\"x\""'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "true", '"true"'),
        ({"anyOf": [{"enum": ["1"]}, {"type": "integer"}]}, "1", '"1"'),
        ({"allOf": [{"$ref": "#/$defs/a~1b"}], "title": "x"}, "[1]", '"[1]"'),
        ({"$ref": "#/$defs/a~01b"}, "5", "5"),
        ({"$ref": "#/$defs/a~1b"}, "5", '"5"'),
        ({"$ref": "#/$defs/loop"}, "5", '"5"'),
        ({"$ref": "#/$defs/loop"}, "None", "null"),
        ({"type": "objct"}, "5", "5"),
        ({"type": [{}]}, "5", "5"),
        ({"type": "number"}, "1e999", "1.7976931348623157e+308"),
        ({"type": "integer"}, HUGE, "1.7976931348623157e+308"),
        ({}, HUGE, "1.7976931348623157e+308"),
        ({"type": "number"}, "1.50", "1.50"),
        ({"type": "array"}, r'["\ud800", 1e999]', r'["\ufffd", 1.7976931348623157e+308]'),
        ({"type": "array"}, "[" * 3000 + "]" * 3000, "[" * 3000 + "]" * 3000),
        ({"type": "array"}, "[" * 3000, f'"{"[" * 3000}"'),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_a_value_has_a_type_of_the_schema(schema: Any, value: str, expected: str) -> None:
    root = {"properties": {"a": schema}, "$defs": DEFS}
    assert arguments(root, parameter("a", value), (40, 60)) == f'{{"a": {expected}}}'


def test_parameters_without_a_name_in_the_root_have_types() -> None:
    assert arguments(TEXTS, W) == '{"w": "5"}'
    assert arguments(EITHER, W) == '{"w": "5"}'
    assert arguments(RECURSIVE, parameter("v", "5")) == '{"v": "5"}'


NULLABLE = {"anyOf": [{"enum": ["x", "1"]}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (NULLABLE, ["x", "1", "null"], ["y", "2"]),
        ({"type": ["string", "null"], "enum": ["x", None]}, ["x", "null"], ["y"]),
        ({"allOf": [{"$ref": "#/$defs/x"}]}, ["x"], ["y"]),
        ({"$ref": "#/$defs/loop"}, ["anything", "null"], []),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, ["5", "true"], ["x"]),
    ],
)
def test_strict_values_match_the_schema(schema: Any, valid: list[str], invalid: list[str]) -> None:
    root = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    used = tool({**root, "$defs": {"x": {"const": "x"}, "loop": LOOP}}, strict=True)
    found = [value for value in [*valid, *invalid] if allowed(used, parameter("a", value))]
    assert found == valid


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([{"type": "string", "maxLength": 3}], "maxLength"),
        ([{"type": "string"}, {"enum": [1]}], "enum"),
    ],
)
def test_a_strict_union_with_a_text_has_no_limits(parts: list[Any], reason: str) -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [*parts, {"type": "null"}]}}}
    with pytest.raises(InvalidRequest, match=f"cannot enforce {reason}"):
        allowed(tool(schema, strict=True), "")
    assert allowed(tool(schema), parameter("a", "text"))
