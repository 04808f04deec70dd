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
from hearthd.text.tool_calls.gemma_calls import FUNCTION_GEMMA
from hearthd.text.tool_calls.generic_calls import GENERIC
from hearthd.text.tool_calls.harmony import HARMONY
from hearthd.text.tool_calls.json_calls import (
    GRANITE,
    HERMES,
    LLAMA_3,
    MISTRAL,
    MISTRAL_NAMED,
    PHI,
)
from hearthd.text.tool_calls.xml_calls import XML
from tests.server import templates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.text.tool_calls.call_format import CallFormat

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": [1, "é"]}}\n</tool_call>'
SCHEMAS: dict[str, Any] = {
    "f": {},
    "g": {
        "properties": {
            "text": {"type": "string"}, "days": {"type": "integer"}, "on": {"type": "boolean"},
            "any": {}, "some": {"enum": ["1", 1, None]}, "list": {"type": "array"},
        },
    },
    "get_it": {},
}  # fmt: skip
BAD = "<tool_call>{nonsense}</tool_call>"


def read(
    text: str,
    cuts: Sequence[int],
    format_: CallFormat | None = HERMES,
    schemas: dict[str, Any] = SCHEMAS,
    **fields: Any,
) -> tuple[str, list[Any]]:
    """What a filter makes of a text that comes in pieces, cut at these places.

    A call that is cut off has its arguments as text.
    """
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    call_filter = CallFilter(format_, schemas, **fields)
    parts = [
        part
        for start, end in itertools.pairwise(places)
        for part in call_filter.push(text[start:end])
    ]
    calls: list[list[Any]] = []
    for delta in itertools.chain.from_iterable(part.calls for part in parts):
        if delta.name:
            assert delta.index == len(calls)
            calls.append([delta.name, ""])
        calls[delta.index][1] += delta.arguments
        if delta.complete:
            calls[delta.index][1] = json.loads(calls[delta.index][1])
    passed = "".join(part.text for part in parts) + call_filter.flush()
    return passed, [tuple(call) for call in calls]


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
        ('cut <tool_call>\n{"name": "f"', "cut", [("f", "")]),
        ('<tool_call>{"name": "f", "arguments": {"a": "x\\u00', "", [("f", '{"a": "x')]),
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
        '{"arguments": {}, "name": "f"}',
        '{"name": 5, "arguments": {}}',
        "[]",
        "",
    ],
)
def test_invalid_hermes_calls_stay_in_the_text(body: str) -> None:
    text = f"<tool_call>{body}</tool_call>"
    assert read(text, []) == (text, [])


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


@pytest.mark.parametrize("body", ["get{}", "call:get", "call:{}", "f{a:1}"])
def test_invalid_function_gemma_calls_stay_in_the_text(body: str) -> None:
    text = f"<start_function_call>{body}<end_function_call>"
    assert read(text, [], FUNCTION_GEMMA) == (text, [])


OBJECT = '{"name": "f", "arguments": {"a": "]}<"}}'
TWO = [("f", {"a": "]}<"}), ("g", {})]
LARGE = '{"name": "f", "arguments": {"a": 1e999}}'
AND = ', {"name": "g", "arguments": {}}]'
TO_G = "<|start|>assistant to=functions.g"
HEADER = "<|start|>assistant<|channel|>commentary to=functions.g"


@pytest.mark.parametrize(
    ("format_", "text", "passed", "calls"),
    [
        (MISTRAL, f"[TOOL_CALLS] [{OBJECT}{AND}", "", TWO),
        (MISTRAL, f"I look. [TOOL_CALLS][{OBJECT}]", "I look.", TWO[:1]),
        (MISTRAL, "[TOOL_CALLS] [{]", "[TOOL_CALLS] [{]", []),
        (MISTRAL_NAMED, '[TOOL_CALLS]f[ARGS]{"a": "]}<"}[TOOL_CALLS]g[ARGS]{}', "", TWO),
        (MISTRAL_NAMED, "[TOOL_CALLS]other[ARGS]{}", "[TOOL_CALLS]other[ARGS]{}", []),
        (MISTRAL_NAMED, "[TOOL_CALLS]g[ARGS]{", "", [("g", "{")]),
        (GRANITE, f"<|tool_call|>[{OBJECT}{AND}", "", TWO),
        (PHI, f"<|tool_call|>[{OBJECT}{AND}<|/tool_call|>", "", TWO),
        (PHI, f"<|tool_call|>[{LARGE}]<|/tool_call|>", "", [("f", {"a": 1.7976931348623157e308})]),
        (HARMONY, f"{HEADER} <|constrain|>json<|message|>{{}}", "", TWO[1:]),
        (HARMONY, f"a{TO_G}<|channel|>commentary json<|message|>{{}}", "a", TWO[1:]),
        (HARMONY, f"{TO_G}<|channel|>commentary<|message|>{{", "", [("g", "{")]),
        (HARMONY, f"{TO_G}<|channel|>comm", "", [("g", "")]),
        (
            HARMONY,
            "<|start|>assistant to=functions.h<|chan",
            "<|start|>assistant to=functions.h<|chan",
            [],
        ),
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
    ("written", "arguments"),
    [
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
        ('{"a": "\\ud83d\\ude00\\udc00x"}', {"a": "\U0001f600\ufffdx"}),
        ('{"a": ' + "9" * 5000 + "}", {"a": 1.7976931348623157e308}),
        ('{"a": -1e999, "b": 0.5}', {"a": -1.7976931348623157e308, "b": 0.5}),
    ],
    ids=["lone surrogate", "surrogate pair", "digits", "infinity"],
)
@given(cuts=st.lists(st.integers(0, 80), max_size=8))
def test_arguments_can_be_read_by_every_client(
    written: str, arguments: dict[str, Any], cuts: list[int]
) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>'
    assert read(text, cuts) == ("", [("f", arguments)])


def test_long_arguments_take_linear_time() -> None:
    call_filter = CallFilter(HERMES, SCHEMAS)
    call_filter.push('<tool_call>{"name": "f", "arguments": ')
    nested = "".join(
        delta.arguments for part in call_filter.push("[" * 100_000) for delta in part.calls
    )
    assert nested == "[" * 100_000


@pytest.mark.parametrize(
    "format_",
    [HERMES, MISTRAL, MISTRAL_NAMED, GRANITE, PHI, LLAMA_3, FUNCTION_GEMMA, GENERIC, HARMONY],
)
@given(text=st.text('<|>[]{}"/:,f 1\\', max_size=30), cut=st.integers(0, 60))
def test_text_after_a_marker_never_raises(format_: CallFormat, text: str, cut: int) -> None:
    written = format_.starts[0] + text
    passed, calls = read(written, [cut], format_)
    assert not calls
    # It stays, or it is the beginning of a call that is cut off.
    assert passed.split() == written.split() or written.startswith(passed)


GENERIC_CALLS = f'{{"tool_calls": [{OBJECT}{AND}}}'
RESPONSE = '{"response": " \\u00e9 {\\n\\"x\\ud800"}'


@pytest.mark.parametrize(
    ("text", "passed", "calls"),
    [
        (GENERIC_CALLS, "", TWO),
        (f" {GENERIC_CALLS}".replace(" ", "  "), "", TWO),
        (RESPONSE, ' é {\n"x\ufffd', []),
        ('{"response": "cut \\u00', "cut ", []),
        ('{"resp', "", []),
        ('{"tool_calls": [', "", []),
        ('{"tool_calls": [{"name": "g"', "", [("g", "")]),
    ],
)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_the_generic_form_is_calls_or_a_text(
    text: str, passed: str, calls: list[Any], cuts: list[int]
) -> None:
    assert read(text, cuts, GENERIC, has_response=True) == (passed, calls)


def parameter(name: str, value: str) -> str:
    return f"<parameter={name}>\n{value}\n</parameter>\n"


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ("", {}),
        (parameter("text", "1") + parameter("days", "1"), {"text": "1", "days": 1}),
        (parameter("text", "\n a\n<b>é</b>\n\n"), {"text": "\n a\n<b>é</b>\n\n"}),
        ("<parameter=text>a</parameter>", {"text": "a"}),
        (parameter("on", "True") + parameter("any", "None"), {"on": True, "any": None}),
        (parameter("any", "a b") + parameter("list", '[1, "x"]'), {"any": "a b", "list": [1, "x"]}),
        (parameter("some", "1"), {"some": "1"}),
        (parameter("days", "NaN"), {"days": "NaN"}),
        (parameter("unknown", "{}"), {"unknown": {}}),
    ],
)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_parameters_in_xml_have_the_types_of_the_schema(
    parameters: str, arguments: Any, cuts: list[int]
) -> None:
    call = f"<tool_call>\n<function=g>\n{parameters}</function>\n</tool_call>"
    assert read(f"I look.\n{call}", cuts, XML) == ("I look.", [("g", arguments)])
    assert read(f"{call}\n{call}", cuts, XML) == ("", [("g", arguments)] * 2)
    assert read(call.replace("=g", "=h"), cuts, XML) == (call.replace("=g", "=h"), [])


@pytest.mark.parametrize("format_", [HERMES, MISTRAL, LLAMA_3, GENERIC])
@given(length=st.integers(0, 60))
def test_no_part_of_a_required_call_is_text(format_: CallFormat, length: int) -> None:
    written = "".join(element for element in format_.head if isinstance(element, str))
    text = format_.starts[0] + written
    assert read(text[:length], [3], format_, only_calls=True)[0] == ""


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
        ("{{ '<|channel|>' }}{{ '<|call|>' }}", HARMONY),
        ("{{ '<tool_call><function=f>' }}", XML),
        ("{{ '<tool_call><arg_key>' }}", None),
        ("""{{ '<|start_header_id|>' }}{{ '"parameters": ' }}""", LLAMA_3),
        ("{{ '<|start_header_id|>' }}", None),
    ],
)
def test_the_template_selects_the_format(template: str, format_: CallFormat | None) -> None:
    assert call_format(template) is format_


def test_the_beginning_of_a_marker_is_text_unless_the_answer_was_cut_off() -> None:
    for cut, rest in ((False, " <tool_"), (True, "")):
        call_filter = CallFilter(HERMES, SCHEMAS)
        assert [part.text for part in call_filter.push("I look. <tool_")] == ["I look."]
        assert call_filter.flush(cut=cut) == rest


def test_without_a_format_every_text_passes() -> None:
    assert read(CALL, [3], None) == (CALL, [])


@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_the_marker_of_a_call_can_end_the_prompt(cuts: list[int]) -> None:
    fields: dict[str, Any] = {"format_": HERMES, "opened": HERMES.marker}
    call = '{"name": "f", "arguments": {}}</tool_call>'
    assert read(call, cuts, **fields) == ("", [("f", {})])
    assert read(f"{{no}} {HERMES.marker}{call}", cuts, **fields) == ("{no}", [("f", {})])
    assert read(" {", cuts, **fields) == (" {", [])
