"""Tool calls in the form that a chat template writes, which probes find."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from hearthd.text.tool_calls.gemma_calls import FUNCTION_GEMMA, GEMMA_4
from hearthd.text.tool_calls.generic_calls import GENERIC
from hearthd.text.tool_calls.harmony import HARMONY
from hearthd.text.tool_calls.json_calls import GRANITE, HERMES, LLAMA_3, MISTRAL, MISTRAL_NAMED
from hearthd.text.tool_calls.python_calls import PYTHON
from hearthd.text.tool_calls.tools import Tool, ToolUse
from hearthd.text.tool_calls.xml_calls import XML, XmlCalls
from tests.server import fakes
from tests.server.grammar_world import World
from tests.text.call_templates import CALL_TEMPLATES, SILENT_TEMPLATES
from tests.text.family_templates import FAMILIES
from tests.text.test_tool_calls import read

TOKENIZER = Tokenizer(fakes.gemma_like(), bos=fakes.BOS)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "days": {"type": "integer"},
        "on": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "number"}, "maxItems": 2},
    },
    "required": ["text"],
    "additionalProperties": False,
}
# Random tokens never spell the end of a text in XML.
XML_SCHEMA = {**SCHEMA, "properties": {**SCHEMA["properties"], "text": {"enum": ["here", "1"]}}}
NAMES = ("f", "get_it")
TOOLS = tuple(Tool(name=name, parameters=json.dumps(SCHEMA), strict=True) for name in NAMES)
ARGUMENTS: dict[str, Any] = {"text": 'é "x" > {y}', "days": 3, "on": True, "list": [1, 2.5]}
CALLS = [("f", ARGUMENTS), ("get_it", {"text": ""})]
GIGACHAT = "gigachat 3.1"  # its template writes one call only


@cache
def chat(source: str) -> ChatTemplate:
    return ChatTemplate(source, TOKENIZER, eos=fakes.EOS)


def turn(source: str, calls: list[tuple[str, Any]], content: str = "") -> str:
    """What a template writes for an answer."""
    message = {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": f"{index:09}", "type": "function", "function": {"name": n, "arguments": a}}
            for index, (n, a) in enumerate(calls)
        ],
    }
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Question?"}, message]
    tools = [tool.as_template() for tool in TOOLS]
    written = chat(source).prompt(messages, tools=tools, add_generation_prompt=False).text
    return (
        written.rpartition("Question?")[2].partition("<|assistant|>")[2].removesuffix("<|end|>\n")
    )


def calls_of(name: str) -> list[tuple[str, Any]]:
    return CALLS[:1] if name == GIGACHAT else CALLS


@pytest.mark.parametrize("name", CALL_TEMPLATES)
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 400), max_size=8))
def test_calls_are_read_as_the_template_writes_them(name: str, cuts: list[int]) -> None:
    form = chat(CALL_TEMPLATES[name])._calls
    assert form is not GENERIC
    written = turn(CALL_TEMPLATES[name], calls_of(name), "I look.")
    text, calls = read(written, cuts, form)
    assert text == "I look."
    assert calls == calls_of(name)


# A special token of each model, which cannot be spelled.
SPECIAL = [
    "<|tools_prefix|>", "<|tools_suffix|>", "<\uff5ctool▁call▁begin\uff5c>",
    "<tool_call>", "</tool_call>", "<arg_key>", "</arg_value>", "<|tool_call_start|>", "<param",
    "<|tool_call_begin|>", "<minimax:tool_call>", "<seed:tool_call>", "<|START_ACTION|>",
]  # fmt: skip
WORLDS = {
    "text": World(fakes.byte_level(special=["<end>"])),
    "special": World(fakes.byte_level(special=[*SPECIAL, "<end>"])),
}


def use(form: Any, **fields: Any) -> ToolUse:
    choice = {"tools": TOOLS, "required": True, "parallel": True, **fields}
    return ToolUse(format=form, **choice)


@cache
def in_world(world: str, source: str) -> Any:
    tokenizer = WORLDS[world].tokenizer
    return ChatTemplate(source, tokenizer, eos=None)._calls


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", CALL_TEMPLATES)
def test_the_grammar_allows_what_the_template_writes(name: str, world: str) -> None:
    written = turn(CALL_TEMPLATES[name], calls_of(name)).strip()
    rules = WORLDS[world].constraint(use(in_world(world, CALL_TEMPLATES[name])), None)
    for token in WORLDS[world].tokenizer.read(written, position="inside"):
        allowed = rules.allowed()
        assert allowed is not None
        assert allowed[token], written
        rules.accept(token)
    allowed = rules.allowed()
    assert allowed is not None
    assert allowed[list(WORLDS[world].ends)].any()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", CALL_TEMPLATES)
@pytest.mark.parametrize("seed", range(3))
def test_a_required_answer_is_calls_that_match_their_schemas(
    name: str, world: str, seed: int
) -> None:
    form = in_world(world, CALL_TEMPLATES[name])
    tokenizer = WORLDS[world].tokenizer
    schema = XML_SCHEMA if isinstance(form, XmlCalls) else SCHEMA
    tools = tuple(Tool(name=n, parameters=json.dumps(schema), strict=True) for n in NAMES)
    rules = WORLDS[world].constraint(use(form, tools=tools, parallel=bool(seed)), None)
    tokens = WORLDS[world].follow(rules, seed, nudge="'\"}],0)")
    shown = [
        tokenizer.name(token).encode() if tokenizer.is_silent(token) else tokenizer.bytes_of(token)
        for token in tokens
    ]
    passed, calls = read(
        b"".join(shown).decode(),
        [9, 40],
        form,
        schemas=dict.fromkeys(NAMES, schema),
        only_calls=True,
    )
    assert passed == ""
    assert calls
    for called, arguments in calls:
        assert called in NAMES
        jsonschema_rs.Draft202012Validator(schema).validate(arguments)


@pytest.mark.parametrize("name", SILENT_TEMPLATES)
def test_a_template_that_leaves_calls_out_gets_them_as_the_model_wrote_them(name: str) -> None:
    form = chat(SILENT_TEMPLATES[name])._calls
    assert form is {"lfm 2": PYTHON, "granite 3.3": GRANITE}[name]
    message: dict[str, Any] = {"role": "user", "content": "x"}
    calls = [
        {"id": "1", "type": "function", "function": {"name": n, "arguments": a}} for n, a in CALLS
    ]
    talk = [message, {"role": "assistant", "content": "I look.", "tool_calls": calls}]
    written = chat(SILENT_TEMPLATES[name]).prompt(talk, add_generation_prompt=False).text
    assert read(written.partition("x")[2], [], form)[1] == CALLS
    assert "I look." in written


@pytest.mark.parametrize(
    ("family", "form"),
    [
        ("qwen 3", HERMES),
        ("qwen 3.5", XML),
        ("mistral", MISTRAL),
        ("ministral 3", MISTRAL_NAMED),
        ("llama 3", LLAMA_3),
        ("granite", GRANITE),
        ("granite 4", HERMES),
        ("exaone 4", HERMES),
        ("function gemma", FUNCTION_GEMMA),
        ("gemma 4", GEMMA_4),
        ("lfm 2", PYTHON),
        ("harmony", HARMONY),
        ("olmo 2", GENERIC),
        ("gemma", GENERIC),
    ],
)
def test_families_have_their_forms(family: str, form: Any) -> None:
    assert chat(FAMILIES[family])._calls is form


ANY: dict[str, Any] = {}
CODE = {"properties": {"code": {"type": "string"}, "markup": {"type": "string"}}}
HELLO = "def hello():\n    print('hey')"


# Answers and calls of tests/test-chat.cpp in llama.cpp, with the schemas of its tools.
@pytest.mark.parametrize(
    ("name", "answer", "calls"),
    [
        ("gemma 4", '<|tool_call>call:f{city:<|"|>London<|"|>}<tool_call|>'
         '<|tool_call>call:g{arg1:-7,b:3.14,c:false,d:null}<tool_call|>',
         [("f", {"city": "London"}), ("g", {"arg1": -7, "b": 3.14, "c": False, "d": None})]),
        ("apertus", '<|tools_prefix|>[{"f": {"arg1": 1}}]<|tools_suffix|>', [("f", {"arg1": 1})]),
        ("minimax m2", '<minimax:tool_call>\n<invoke name="f">\n<parameter name="arg1">1'
         '</parameter>\n</invoke>\n</minimax:tool_call>', [("f", {"arg1": 1})]),
        ("minicpm 5", '<function name="f"><param name="code">print(\'x\')</param></function>\n'
         '<function name="f"><param name="markup"><![CDATA[<a href="/x">hi</a> </param>]]></param>'
         '</function>',
         [("f", {"code": "print('x')"}), ("f", {"markup": '<a href="/x">hi</a> </param>'})]),
        ("minicpm 5", '<function name="f"></function>', [("f", {})]),
        ("lfm 2.5", '<|tool_call_start|>[f(arg1=1), g(arg1=1, arg2=2)]<|tool_call_end|>',
         [("f", {"arg1": 1}), ("g", {"arg1": 1, "arg2": 2})]),
        ("lfm 2.5", '<|tool_call_start|>[f(code="def hello():\\n    print(\'hey\')")]'
         "<|tool_call_end|>", [("f", {"code": HELLO})]),
        ("lfm 2.5", '<|tool_call_start|>[f(code="print(\\"hi\\")")]<|tool_call_end|>',
         [("f", {"code": 'print("hi")'})]),
        ("lfm 2.5", '<|tool_call_start|>[f(config={"enabled": True, "count": 3})]<|tool_call_end|>',
         [("f", {"config": {"enabled": True, "count": 3}})]),
        ("lfm 2.5", '<|tool_call_start|>[f(enabled=True), g(value=None)]<|tool_call_end|>',
         [("f", {"enabled": True}), ("g", {"value": None})]),
        ("lfm 2.5", "Use this format: [link text](url).", []),
    ],
)  # fmt: skip
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_llama_cpps_answers_are_read_as_there(
    name: str, answer: str, calls: list[Any], cuts: list[int]
) -> None:
    form = chat({**FAMILIES, **CALL_TEMPLATES}[name])._calls
    schemas = {"f": CODE, "g": ANY}
    text, found = read(answer, cuts, form, schemas=schemas)
    assert found == calls
    assert text == ("" if calls else answer)


@pytest.mark.parametrize("name", ["seed oss", "minicpm 5"])
def test_values_of_python_are_read(name: str) -> None:
    """These templates write lists and objects as Python does, so models do, too."""
    form = chat(CALL_TEMPLATES[name])._calls
    written = turn(CALL_TEMPLATES[name], [("f", {"a": "%s"})])
    schemas = {"f": {"properties": {"a": {"type": ["object", "array", "boolean", "null"]}}}}
    for python, value in [
        ("{'k': [1, None, \"it's\"]}", {"k": [1, None, "it's"]}),
        ("['a']", ["a"]),
        ("True", True),
        ("None", None),
    ]:
        read_back = read(written.replace("%s", python), [], form, schemas=schemas)
        assert read_back == ("", [("f", {"a": value})])
