"""Tool calls in text: parsed, in pieces as in one, and nothing of a call among the words."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.text.tool_calls import FUNCTION_GEMMA, HERMES, CallFilter, CallFormat, call_format
from tests.server import templates

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": [1, "é"]}}\n</tool_call>'
BAD = "<tool_call>{nonsense}</tool_call>"


def read(text: str, cuts: list[int], format_: CallFormat | None = HERMES) -> tuple[str, list[Any]]:
    """What a filter makes of a text that comes in pieces, cut at these places."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    call_filter = CallFilter(format_)
    passed, calls = "", []
    for start, end in itertools.pairwise(places):
        more, new = call_filter.push(text[start:end])
        passed += more
        calls += [(call.name, json.loads(call.arguments)) for call in new]
    return passed + call_filter.flush(), calls


ONE = [("f", {"a": [1, "é"]})]


@pytest.mark.parametrize(
    ("text", "passed", "calls"),
    [
        ("no call  ", "no call  ", []),
        (CALL, "", ONE),
        (f"I look.\n\n{CALL}", "I look.", ONE),
        (f" {CALL}\n{CALL}\n", "", ONE * 2),
        (f"{CALL} and then", "and then", ONE),
        (f"a {BAD} b", f"a {BAD} b", []),
        (f"a {BAD} {CALL}", f"a {BAD}", ONE),
        ("cut <tool_call>\n{", "cut", []),
        ("<tool", "<tool", []),
        ("< tool_call>", "< tool_call>", []),
    ],
)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_the_division_into_pieces_makes_no_difference(
    text: str, passed: str, calls: list[Any], cuts: list[int]
) -> None:
    assert read(text, cuts) == (passed, calls)


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "f"}',
        '{"name": 5, "arguments": {}}',
        '{"name": "f", "arguments": []}',
        "[]",
        "",
        '{"name": "f", "arguments": {}',
    ],
)
def test_invalid_hermes_calls_stay_in_the_text(body: str) -> None:
    text = f"<tool_call>{body}</tool_call>"
    expected: Any = ("", [("f", {})]) if body == '{"name": "f"}' else (text, [])
    assert read(text, []) == expected


def gemma(value: Any) -> str:
    """A value as FunctionGemma's template writes it."""
    if isinstance(value, str):
        return f"<escape>{value}<escape>"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma(item)}" for key, item in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma, value)) + "]"
    return json.dumps(value)


values = st.recursive(
    st.one_of(
        st.integers(), st.booleans(), st.floats(-9, 9), st.text('ab:{},[] \n"\\é', max_size=9)
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_1", min_size=1), inner)
    ),
    max_leaves=8,
)


@given(arguments=st.dictionaries(st.text("abc_1", min_size=1), values, max_size=4))
def test_function_gemma_calls_are_parsed(arguments: dict[str, Any]) -> None:
    text = f"<start_function_call>call:get_it{gemma(arguments)}<end_function_call>"
    assert read(text, [7, 30], FUNCTION_GEMMA) == ("", [("get_it", arguments)])


@pytest.mark.parametrize("body", ["get{}", "call:get", "call:get{a}", "call:get{a:}", "call:g{a:1"])
def test_invalid_function_gemma_calls_stay_in_the_text(body: str) -> None:
    text = f"<start_function_call>{body}<end_function_call>"
    assert read(text, [], FUNCTION_GEMMA) == (text, [])


def test_the_template_selects_the_format() -> None:
    assert call_format(templates.CHATML) is HERMES
    assert call_format("<start_function_call>call:") is FUNCTION_GEMMA
    assert call_format(templates.GEMMA) is None
    assert read(CALL, [3], None) == (CALL, [])
