"""Grammars of tool calls: random tokens, read back and checked by jsonschema-rs."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.call_grammar import CallGrammars
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.tool_calls.call_filter import CallFilter
from hearthd.text.tool_calls.call_format import NAME, SPACE
from hearthd.text.tool_calls.gemma_calls import FUNCTION_GEMMA
from hearthd.text.tool_calls.generic_calls import GENERIC
from hearthd.text.tool_calls.json_calls import (
    GRANITE,
    HERMES,
    LLAMA_3,
    MISTRAL,
    MISTRAL_NAMED,
    PHI,
)
from hearthd.text.tool_calls.tools import Tool, ToolUse
from hearthd.text.tool_calls.xml_calls import XML
from tests.server.fakes import byte_level, gemma_like
from tests.server.grammar_world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.text.grammars.answer_constraint import AnswerConstraint
    from hearthd.text.tool_calls.call_format import CallFormat

FORMATS = {
    "hermes": HERMES,
    "llama": LLAMA_3,
    "mistral": MISTRAL,
    "mistral named": MISTRAL_NAMED,
    "granite": GRANITE,
    "phi": PHI,
    "function gemma": FUNCTION_GEMMA,
    "generic": GENERIC,
    "xml": XML,
}
MARKERS = sorted({name for format_ in FORMATS.values() for name in format_.special})
# Markers that are special tokens, and markers that are plain text.
WORLDS = {
    "special": World(gemma_like(special=[*MARKERS, "<end>"])),
    "text": World(byte_level(special=["<end>"])),
}
# Ends texts, calls and answers soon.
NUDGE = '"}],0><escape>'
F = {
    "type": "object",
    "properties": {
        "place": {"type": "string", "maxLength": 8},
        "unit": {"enum": ["C", "F"]},
        "days": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["place", "days"],
    "additionalProperties": False,
}
G = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}, "next": {"$ref": "#/$defs/node"}},
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"value": {"type": ["number", "null"]}},
            "required": ["value"],
            "additionalProperties": False,
        }
    },
    "additionalProperties": False,
}
SCHEMAS = {"f": F, "g": G}
# FunctionGemma's form has no length of a text. Random tokens never spell the end of one in XML.
SIMPLE_F = {**F, "properties": {**F["properties"], "place": {"type": "string"}}}  # type: ignore[dict-item]
XML_F = {**F, "properties": {**F["properties"], "place": {"enum": ["here", "1"]}}}  # type: ignore[dict-item]
JSON_TOOLS, TOOLS, XML_TOOLS = (
    tuple(
        Tool(name=name, parameters=json.dumps(schema), strict=True)
        for name, schema in {"f": of_f, "g": G}.items()
    )
    for of_f in (F, SIMPLE_F, XML_F)
)


def use(format_: CallFormat, **fields: Any) -> ToolUse:
    tools = {FUNCTION_GEMMA: TOOLS, XML: XML_TOOLS}.get(format_, JSON_TOOLS)
    return ToolUse(
        **{"format": format_, "tools": tools, "required": True, "parallel": True, **fields}
    )


def constraint(world: str, tools: ToolUse, answer: Grammar | None) -> AnswerConstraint:
    """The constraint of an answer in one of the WORLDS."""
    return WORLDS[world].constraint(tools, answer)


@dataclasses.dataclass
class ReadCall:
    """A call in an answer."""

    name: str
    arguments: str = ""


def read(world: World, format_: CallFormat, tokens: Sequence[int]) -> tuple[str, list[ReadCall]]:
    """The text and the calls of an answer."""
    shown = [
        world.tokenizer.name(token)
        if world.tokenizer.is_silent(token)
        else world.tokenizer.bytes_of(token).decode("latin-1")
        for token in tokens
    ]
    text = "".join(shown).encode("latin-1").decode()
    call_filter = CallFilter(format_, SCHEMAS, has_response=True)
    # In two pieces, as a stream has them.
    parts = [part for half in (text[:20], text[20:]) for part in call_filter.push(half)]
    calls: list[ReadCall] = []
    for delta in itertools.chain.from_iterable(part.calls for part in parts):
        if delta.name:
            calls.append(ReadCall(delta.name))
        calls[delta.index].arguments += delta.arguments
    assert not call_filter.open
    return "".join(part.text for part in parts) + call_filter.flush(), calls


def validate(calls: Sequence[ReadCall], format_: CallFormat) -> None:
    of_f = {FUNCTION_GEMMA: SIMPLE_F, XML: XML_F}.get(format_, F)
    for call in calls:
        schema = {"f": of_f, "g": G}[call.name]
        jsonschema_rs.Draft202012Validator(schema).validate(json.loads(call.arguments))


few = settings(max_examples=4, deadline=None)
# Random tokens hardly ever spell the name that ends a text in FunctionGemma's form.
CASES = [("special", name) for name in FORMATS] + [
    ("text", name) for name in FORMATS if name != "function gemma"
]
# The grammar of the generic form applies from the first token on.
TRIGGERED = [(world, name) for world, name in CASES if name != "generic"]


@pytest.mark.parametrize(("world", "name"), CASES)
@few
@given(seed=st.integers(0, 2**32 - 1), parallel=st.booleans())
def test_a_required_answer_is_calls_that_match_their_schemas(
    world: str, name: str, seed: int, parallel: bool
) -> None:
    rules = constraint(world, use(FORMATS[name], parallel=parallel), None)
    tokens = WORLDS[world].follow(rules, seed, nudge=NUDGE)
    passed, calls = read(WORLDS[world], FORMATS[name], tokens)
    assert passed == ""
    assert len(calls) >= 1
    assert parallel or len(calls) == 1
    validate(calls, FORMATS[name])


@pytest.mark.parametrize(("world", "name"), CASES)
def test_an_answer_without_tools_is_a_text_in_which_no_call_begins(world: str, name: str) -> None:
    """Random tokens, and the beginning of a call spelled out."""
    format_ = FORMATS[name]
    none = use(format_, tools=(), required=False)
    for seed in range(4):
        tokens = WORLDS[world].follow(constraint(world, none, None), seed, nudge=NUDGE)
        _, calls = read(WORLDS[world], format_, tokens)
        assert not calls
    call = "".join(
        str(element)
        for element in (format_.marker, *format_.heads[0][: format_.heads[0].index(NAME)])
        if element is not SPACE
    )
    rules, allowed = constraint(world, none, None), list[bool]()
    for token in WORLDS[world].tokenizer.read(call, position="inside"):
        mask = rules.allowed()
        allowed.append(mask is None or bool(mask[token]))
        if not allowed[-1]:
            break
        rules.accept(token)
    assert not all(allowed)


ANSWER = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
          "additionalProperties": False}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_with_a_response_format_an_answer_is_calls_or_matches_it(name: str) -> None:
    grammar = Grammar("json_schema", json.dumps(ANSWER))
    kinds = set()
    for seed in range(8):
        rules = constraint("special", use(FORMATS[name], required=False), grammar)
        nudge = "{" if seed % 2 else "".join(FORMATS[name].special)
        tokens = WORLDS["special"].follow(rules, seed, nudge=NUDGE + nudge)
        passed, calls = read(WORLDS["special"], FORMATS[name], tokens)
        validate(calls, FORMATS[name])
        if not calls:
            jsonschema_rs.Draft202012Validator(ANSWER).validate(json.loads(passed))
        assert not (calls and passed)
        kinds.add(bool(calls))
    assert kinds == ({True, False})


@pytest.mark.parametrize("type_", ["regex", "choice", "lark"])
def test_the_other_answer_can_be_of_any_type(type_: Any) -> None:
    value = {"regex": "ab+", "choice": '["abb"]', "lark": 'start: "abb"'}[type_]
    rules = constraint("text", use(HERMES, required=False), Grammar(type_, value))
    for token in WORLDS["text"].tokenizer.read("abb", special=False):
        rules.accept(token)
    wrong = Grammar("regex", "[a", "response_format.regex")
    with pytest.raises(InvalidRequest, match=r"^response_format\.regex"):
        constraint("text", use(HERMES, required=False), wrong)


BEGINNINGS = {
    "hermes": "I look.\n<tool_call>",
    "llama": '{"name": "',
    "mistral": "I look. [TOOL_CALLS]",
    "mistral named": "[TOOL_CALLS]",
    "granite": "<|tool_call|>",
    "phi": "I look. <|tool_call|>",
    "function gemma": "<start_function_call>",
    "xml": "I look.\n<tool_call>",
}


@pytest.mark.parametrize(("world", "name"), TRIGGERED)
@few
@given(seed=st.integers(0, 2**32 - 1))
def test_a_call_in_free_text_is_constrained_from_its_beginning(
    world: str, name: str, seed: int
) -> None:
    rules = constraint(world, use(FORMATS[name], required=False), None)
    tokenizer = WORLDS[world].tokenizer
    begun = tokenizer.read(BEGINNINGS[name])
    assert rules.allowed() is None
    for token in begun:
        rules.accept(token)
    assert rules.allowed() is not None
    tokens = WORLDS[world].follow(rules, seed, nudge=NUDGE)
    passed, calls = read(WORLDS[world], FORMATS[name], [*begun, *tokens])
    assert passed in ("", "I look.")
    assert calls
    validate(calls, FORMATS[name])


@few
@given(seed=st.integers(0, 2**32 - 1))
def test_the_generic_form_is_calls_or_a_text(seed: int) -> None:
    """The end of a string is likely, so both occur."""
    rules = constraint("text", use(GENERIC, required=False), None)
    tokens = WORLDS["text"].follow(rules, seed, nudge=NUDGE)
    passed, calls = read(WORLDS["text"], GENERIC, tokens)
    validate(calls, GENERIC)
    assert not (calls and passed)
    begins = WORLDS["text"].tokenizer.decode(tokens).split('"')[1]
    assert begins == ("tool_calls" if calls else "response")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "no call < tool_call> <tool_"),
        ("hermes", "a <tool_call></tool_call> b"),
        ("llama", '{"place": "x"}'),
        ("llama", 'It is {"name": "f"'),
        ("llama", " " * 300 + '{"name": "f"'),
    ],
)
def test_text_that_is_no_call_stays_free(name: str, text: str) -> None:
    rules = constraint("text", use(FORMATS[name], required=False), None)
    # One token, as vocabularies have them in which a marker ends inside a word.
    for part in text.split(" b"):
        for token in WORLDS["text"].tokenizer.read(part, special=False):
            rules.accept(token)
            if rules.allowed() is not None:
                break
        assert "</" in text or rules.allowed() is None


def test_a_marker_may_end_inside_a_token() -> None:
    """The rest of the token belongs to the call, whatever its tokens are."""
    world = World(byte_level(special=()))
    library = byte_level()
    library.add_tokens(['.<tool_call>{"name', "<tool_call></"])
    world = World(library)
    tokenizer = world.tokenizer
    rules = world.constraint(use(HERMES, required=False), None)
    (joined,) = tokenizer.read('.<tool_call>{"name')
    (wrong,) = tokenizer.read("<tool_call></")
    rules.accept(wrong)
    assert rules.allowed() is None
    rules.accept(joined)
    allowed = rules.allowed()
    assert allowed is not None
    (quote,) = tokenizer.read('"')
    assert allowed[quote]
    assert allowed.sum() < 20


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("parameters", [None, "{}", '{"type": "object", "properties": {}}'])
def test_a_function_without_parameters_has_no_arguments(name: str, parameters: str | None) -> None:
    tools = (Tool(name="f", parameters=parameters),)
    rules = constraint("special", use(FORMATS[name], tools=tools, parallel=False), None)
    tokens = WORLDS["special"].follow(rules, 3, nudge=NUDGE)
    _, calls = read(WORLDS["special"], FORMATS[name], tokens)
    assert [call.arguments for call in calls] == ["{}"]


@pytest.mark.parametrize("name", FORMATS)
def test_arguments_are_an_object_also_if_the_schema_does_not_say_so(name: str) -> None:
    tools = (Tool(name="f", parameters='{"properties": {"a": {"type": "null"}}}'),)
    for seed in range(4):
        rules = constraint("special", use(FORMATS[name], tools=tools, parallel=False), None)
        tokens = WORLDS["special"].follow(rules, seed, nudge=NUDGE)
        _, calls = read(WORLDS["special"], FORMATS[name], tokens)
        assert [json.loads(call.arguments) for call in calls] in ([{}], [{"a": None}])


UNSUPPORTED = {"type": "object", "properties": {"a": {"type": "integer"}}, "not": {}}
INVALID = {"type": "objct", "properties": {}}


@pytest.mark.parametrize("format_", [HERMES, FUNCTION_GEMMA, XML])
@pytest.mark.parametrize(("schema", "reason"), [(UNSUPPORTED, "not"), (INVALID, "objct")])
def test_only_a_strict_tool_needs_a_schema_that_can_be_enforced(
    format_: CallFormat, schema: Any, reason: str
) -> None:
    tool = Tool(name="f", parameters=json.dumps(schema), strict=True, field="tools[0].parameters")
    with pytest.raises(InvalidRequest, match=rf"^tools\[0\]\.parameters: .*{reason}"):
        constraint("text", use(format_, tools=(tool,)), None)
    tool = Tool(name="f", parameters=json.dumps(schema))
    rules = constraint("text", use(format_, tools=(tool,)), None)
    _, calls = read(WORLDS["text"], format_, WORLDS["text"].follow(rules, 1, nudge=NUDGE))
    assert {call.name for call in calls} == {"f"}


def test_a_keyword_that_only_json_can_enforce_is_named() -> None:
    tool = Tool(name="f", parameters=json.dumps(F), strict=True, field="tools[0].parameters")
    with pytest.raises(InvalidRequest, match="cannot enforce maxLength"):
        constraint("special", use(FUNCTION_GEMMA, tools=(tool,)), None)


def test_a_text_in_xml_ends_with_its_parameter_alone() -> None:
    schema = {
        "type": "object", "required": ["code"],
        "properties": {"code": {"type": "string"}, "line": {"type": ["integer", "null"]}},
    }  # fmt: skip
    tools = (Tool(name="f", parameters=json.dumps(schema), strict=True),)
    rules = constraint("text", use(XML, tools=tools, parallel=False), None)
    code = 'if a < b:\n    print("</div></parameter")\n'
    call = "<tool_call>\n<function=f>\n<parameter=code>\n" + code
    rest = "\n</parameter>\n<parameter=line>\n3\n</parameter>\n</function>\n</tool_call>"
    tokens = WORLDS["text"].tokenizer.read(call + rest, special=False)
    for token in tokens:
        allowed = rules.allowed()
        assert allowed is not None
        assert allowed[token]
        rules.accept(token)
    passed, calls = read(WORLDS["text"], XML, tokens)
    assert passed == ""
    assert [json.loads(call.arguments) for call in calls] == [{"code": code, "line": 3}]
    long = Tool(name="f", parameters=json.dumps(F), strict=True, field="tools[0].parameters")
    with pytest.raises(InvalidRequest, match="cannot enforce maxLength"):
        constraint("text", use(XML, tools=(long,)), None)


def test_a_schema_cannot_turn_checks_off() -> None:
    schema = json.dumps({**UNSUPPORTED, "x-guidance": {"lenient": True}})
    with pytest.raises(InvalidRequest, match="not"):
        constraint(
            "text", use(HERMES, tools=(Tool(name="f", parameters=schema, strict=True),)), None
        )


def test_dozens_of_tools_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coding agents send as many with each turn."""
    world = WORLDS["text"]
    schemas = ({"type": "object", "properties": {f"k{at}": F}} for at in range(60))
    tools = tuple(Tool(name=f"f{at}", parameters=json.dumps(x)) for at, x in enumerate(schemas))
    call_grammars = CallGrammars(world.grammars, world.tokenizer)
    first = call_grammars.rules(use(HERMES, tools=tools), None)
    world.constraints.constraint(first)
    monkeypatch.setattr("llguidance.LLParserLimits", None)  # nothing can be compiled
    assert call_grammars.rules(use(HERMES, tools=tools), None) == first
    world.constraints.constraint(first)
