"""Tool calls in text: parsed, in pieces as in one, and nothing of a call among the words."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.text.tool_calls.call_filter import CallFilter
from hearthd.text.tool_calls.call_formats import call_format
from hearthd.text.tool_calls.function_gemma import FUNCTION_GEMMA
from hearthd.text.tool_calls.json_calls import (
    GRANITE,
    HERMES,
    LLAMA_3,
    MISTRAL,
    MISTRAL_NAMED,
    PHI,
)
from tests.server import templates

if TYPE_CHECKING:
    from hearthd.text.tool_calls.call_format import CallFormat

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": [1, "é"]}}\n</tool_call>'
BAD = "<tool_call>{nonsense}</tool_call>"


def read(text: str, cuts: list[int], format_: CallFormat | None = HERMES) -> tuple[str, list[Any]]:
    """What a filter makes of a text that comes in pieces, cut at these places."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    call_filter = CallFilter(format_, ["f", "g", "get_it"])
    passed, calls = "", list[Any]()
    for start, end in itertools.pairwise(places):
        more, new = call_filter.push(text[start:end])
        passed += more
        calls += new
    more, new = call_filter.flush()
    read_calls = [(call.name, json.loads(call.arguments)) for call in (*calls, *new)]
    return passed + more, read_calls


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
        ("cut <tool_call>\n{", "cut <tool_call>\n{", []),
        (
            'a <tool_call>{"name": "h"}</tool_call>',
            'a <tool_call>{"name": "h"}</tool_call>',
            [],
        ),
        (f"a {CALL.removesuffix('</tool_call>')}", "a", ONE),
        (
            '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>',
            "",
            [("f", {"a": "</tool_call>"})],
        ),
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


OBJECT = '{"name": "f", "arguments": {"a": "]}<"}}'
TWO = [("f", {"a": "]}<"}), ("g", {})]
LARGE = '{"name": "f", "arguments": {"a": 1e999}}'
AND = ', {"name": "g", "arguments": {}}]'


@pytest.mark.parametrize(
    ("format_", "text", "passed", "calls"),
    [
        (MISTRAL, f"[TOOL_CALLS] [{OBJECT}{AND}", "", TWO),
        (MISTRAL, f"I look. [TOOL_CALLS][{OBJECT}]", "I look.", TWO[:1]),
        (MISTRAL, "[TOOL_CALLS] [{]", "[TOOL_CALLS] [{]", []),
        (MISTRAL_NAMED, '[TOOL_CALLS]f[ARGS]{"a": "]}<"}[TOOL_CALLS]g[ARGS]{}', "", TWO),
        (MISTRAL_NAMED, "[TOOL_CALLS]g[CALL_ID]012345678[ARGS]{}", "", TWO[1:]),
        (MISTRAL_NAMED, "[TOOL_CALLS]other[ARGS]{}", "[TOOL_CALLS]other[ARGS]{}", []),
        (MISTRAL_NAMED, "[TOOL_CALLS]g[ARGS]{", "[TOOL_CALLS]g[ARGS]{", []),
        (GRANITE, f"<|tool_call|>[{OBJECT}{AND}", "", TWO),
        (GRANITE, f"<|tool_call|>[{OBJECT}, 1]", f"<|tool_call|>[{OBJECT}, 1]", []),
        (PHI, f"<|tool_call|>[{OBJECT}{AND}<|/tool_call|>", "", TWO),
        (PHI, f"<|tool_call|>{OBJECT}<|/tool_call|>", "", TWO[:1]),
        (PHI, f"<|tool_call|>{LARGE}<|/tool_call|>", "", [("f", {"a": 1.7976931348623157e308})]),
        (LLAMA_3, ' {"name": "f", "parameters": {"a": 1}}', "", [("f", {"a": 1})]),
        (LLAMA_3, '<|python_tag|>{"name": "g", "parameters": {}}', "", TWO[1:]),
        (LLAMA_3, '{"name": "Bob", "age": 3} is', '{"name": "Bob", "age": 3} is', []),
        (LLAMA_3, '{"a": 1}', '{"a": 1}', []),
        (LLAMA_3, 'No: {"name": "g", "parameters": {}}', 'No: {"name": "g", "parameters": {}}', []),
    ],
)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_every_format_is_read_in_pieces_of_any_size(
    format_: CallFormat, text: str, passed: str, calls: list[Any], cuts: list[int]
) -> None:
    assert read(text, cuts, format_) == (passed, calls)


@pytest.mark.parametrize(
    "arguments",
    ["[" * 100_000, '{"a":' * 100_000, '{"a": "\\ud800"}', '{"a": NaN}',
     '{"a": ' + "9" * 5000 + "}"],
    ids=["array", "object", "surrogate", "nan", "digits"],
)  # fmt: skip
@pytest.mark.parametrize("format_", [HERMES, MISTRAL, MISTRAL_NAMED, GRANITE, PHI, LLAMA_3])
def test_arguments_that_cannot_be_sent_are_text(format_: CallFormat, arguments: str) -> None:
    head = "[TOOL_CALLS]f[ARGS]" if format_ is MISTRAL_NAMED else format_.starts[0]
    body = f'{{"name": "f", "arguments": {arguments}, "parameters": {arguments}}}'
    text = head + (arguments if format_ is MISTRAL_NAMED else body)
    assert read(text, [], format_) == (text, [])


@pytest.mark.parametrize(
    "format_", [HERMES, MISTRAL, MISTRAL_NAMED, GRANITE, PHI, LLAMA_3, FUNCTION_GEMMA]
)
@given(text=st.text('<|>[]{}"/:,f 1\\', max_size=30), cut=st.integers(0, 60))
def test_text_after_a_marker_never_raises(format_: CallFormat, text: str, cut: int) -> None:
    written = format_.starts[0] + text
    passed, calls = read(written, [cut], format_)
    assert calls or passed.split() == written.split()


@pytest.mark.parametrize(
    ("template", "format_"),
    [
        (templates.CHATML, HERMES),
        (templates.FUNCTION_GEMMA, FUNCTION_GEMMA),
        (templates.GEMMA, None),
        ("{{ '[TOOL_CALLS]' }}", MISTRAL),
        ("{{ '[TOOL_CALLS]' }}{{ '[ARGS]' }}", MISTRAL_NAMED),
        ("{{ '<|start_of_role|>' }}", GRANITE),
        ("{{ '<|start_of_role|>' }}{{ '<tool_call>' }}", HERMES),
        ("{{ '<|tool|>' }}", PHI),
        ("{{ '<tool_call><function=f>' }}", None),
        ("""{{ '<|start_header_id|>' }}{{ '"parameters": ' }}""", LLAMA_3),
        ("{{ '<|start_header_id|>' }}", None),
    ],
)
def test_the_template_selects_the_format(template: str, format_: CallFormat | None) -> None:
    assert call_format(template) is format_


def test_without_a_format_every_text_passes() -> None:
    assert read(CALL, [3], None) == (CALL, [])
