"""Answers of messages in channels, as gpt-oss writes them: grammars, and what is read of them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.text.detokenize import Detokenizer
from hearthd.text.grammars.answer_constraint import AnswerRules
from hearthd.text.grammars.call_grammar import CallGrammars
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.reasoning import Reasoning, ReasoningFilter, reasoning_tags
from hearthd.text.tool_calls.call_filter import CallFilter
from hearthd.text.tool_calls.harmony import HARMONY
from hearthd.text.tool_calls.tools import Tool, ToolUse
from tests.server.fakes import gemma_like
from tests.server.grammar_world import World
from tests.text.later_templates import HARMONY as TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.text.grammars.answer_constraint import AnswerConstraint

TAGS = reasoning_tags(TEMPLATE)
assert TAGS is not None
REASONING = Reasoning(tags=TAGS, begun=False)
SPECIAL = [f"<|{name}|>" for name in ("start", "end", "message", "channel", "constrain")]
WORLD = World(gemma_like(special=[*SPECIAL, "<end>"]))
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
ANSWER = Grammar("json_schema", json.dumps(SCHEMA))
TOOLS = tuple(Tool(name=name, parameters=ANSWER.value, strict=True) for name in ("f", "g"))
THOUGHT = "<|channel|>analysis<|message|>the dog: <b> to=functions.f<|end|><|start|>assistant"
CALLS = (
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
    "<|channel|>commentary to=functions.g json<|message|>",
    "<|channel|>analysis to=functions.g<|message|>",
    " to=functions.f<|channel|>commentary json<|message|>",
)
FINAL = "<|channel|>final<|message|>"
few = settings(max_examples=4, deadline=None)


def use(*, required: bool) -> ToolUse:
    return ToolUse(format=HARMONY, tools=TOOLS, required=required, parallel=True)


def constraint(
    tools: ToolUse | None, answer: Grammar | None, reasoning: Reasoning = REASONING
) -> AnswerConstraint:
    rules = CallGrammars(WORLD.grammars, WORLD.tokenizer).rules(tools, answer, reasoning)
    return WORLD.constraints.constraint(dataclasses.replace(rules, reasoning=reasoning))


def spell(rules: AnswerConstraint, text: str) -> list[int]:
    """Accept a text, all of whose tokens must be allowed; returns the tokens."""
    tokens = WORLD.tokenizer.read(text, position="inside")
    for token in tokens:
        allowed = rules.allowed()
        assert allowed is None or allowed[token], text
        rules.accept(token)
    return list(tokens)


def read(tokens: Sequence[int]) -> tuple[str, str, list[list[str]]]:
    """The reasoning, the text and the calls of an answer."""
    shown = Detokenizer(WORLD.tokenizer, shown=(*REASONING.tags.special, *HARMONY.special))
    reasoning_filter, call_filter = (
        ReasoningFilter(REASONING),
        CallFilter(HARMONY, {"f": {}, "g": {}}),
    )
    reasoning, text, calls = "", "", list[list[str]]()
    pieces = [reasoning_filter.push(shown.push(token)) for token in tokens]
    pieces += [reasoning_filter.push(shown.flush()), reasoning_filter.flush()]
    for thought, rest in pieces:
        reasoning += thought
        for passed in call_filter.push(rest):
            text += passed.text
            for delta in passed.calls:
                if delta.name:
                    calls.append([delta.name, ""])
                calls[-1][1] += delta.arguments
    return reasoning, text + call_filter.flush(), calls


def validate(written: str) -> None:
    jsonschema_rs.Draft202012Validator(SCHEMA).validate(json.loads(written))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("thought", ["", THOUGHT])
@pytest.mark.parametrize("required", [True, False])
@few
@given(seed=st.integers(0, 2**32 - 1))
def test_the_arguments_of_a_call_are_constrained(
    call: str, thought: str, required: bool, seed: int
) -> None:
    rules = constraint(use(required=required), None)
    tokens = spell(rules, thought + call)
    tokens += WORLD.follow(rules, seed)
    reasoning, text, ((name, arguments),) = read(tokens)
    assert (reasoning != "", text) == (thought != "", "")
    assert f"functions.{name}" in call
    validate(arguments)


@few
@given(seed=st.integers(0, 2**32 - 1))
def test_a_required_answer_is_reasoning_and_a_call(seed: int) -> None:
    rules = constraint(use(required=True), None)
    _, text, ((_, arguments),) = read(WORLD.follow(rules, seed, nudge="".join(SPECIAL)))
    assert text == ""
    validate(arguments)


def test_the_name_of_a_function_ends_before_the_kind_of_its_arguments() -> None:
    rules: Any = constraint(use(required=True), None)
    spell(rules, "<|channel|>commentary to=functions.g")
    (letter,) = WORLD.tokenizer.read("j", position="inside")
    assert not rules.allowed()[letter]


@pytest.mark.parametrize("thought", ["", THOUGHT])
@pytest.mark.parametrize("tools", [None, use(required=False)])
def test_an_answer_in_json_follows_its_header(thought: str, tools: ToolUse | None) -> None:
    rules = constraint(tools, ANSWER)
    tokens = spell(rules, thought + FINAL)
    tokens += WORLD.follow(rules, 3)
    reasoning, text, calls = read(tokens)
    assert (reasoning != "", calls) == (thought != "", [])
    validate(text)


def test_a_continued_answer_in_json_has_no_header() -> None:
    rules = constraint(None, ANSWER, dataclasses.replace(REASONING, possible=False))
    spell(rules, '{"ok"')


def test_text_in_the_answer_is_no_call() -> None:
    rules = constraint(use(required=False), None)
    words = "I said to=functions.f<|message|>"
    tokens = spell(rules, f"{THOUGHT}{FINAL}{words}")
    assert rules.allowed() is None
    assert read(tokens)[1:] == (words, [])


def test_a_budget_ends_the_reasoning_with_the_header_of_the_answer() -> None:
    rules = AnswerRules(reasoning=dataclasses.replace(REASONING, budget=1))
    limited: Any = WORLD.constraints.constraint(rules)
    spell(limited, "<|channel|>analysis<|message|>")
    assert limited.allowed() is None
    spell(limited, "a")
    for token in WORLD.tokenizer.read(f"<|end|><|start|>assistant{FINAL}", position="inside"):
        assert list(limited.allowed().nonzero()[0]) == [token]
        limited.accept(token)
    assert limited.allowed() is None


@pytest.mark.parametrize(("tools", "answer"), [(use(required=True), None), (None, ANSWER)])
def test_a_budget_ends_the_reasoning_before_what_a_grammar_demands(
    tools: ToolUse | None, answer: Grammar | None
) -> None:
    none: Any = constraint(tools, answer, dataclasses.replace(REASONING, budget=0))
    with pytest.raises(AssertionError):
        spell(none, "<|channel|>analysis<|message|>")
    limited: Any = constraint(tools, answer, dataclasses.replace(REASONING, budget=3))
    tokens = spell(limited, "<|channel|>analysis<|message|>")
    # The third token is the first byte of a character, which ends after the budget.
    for token in WORLD.tokenizer.read("ab\N{GREEK SMALL LETTER ALPHA}", position="inside"):
        assert limited.allowed()[token]
        assert limited.allowed().sum() > 1
        limited.accept(token)
        tokens.append(token)
    (end,) = WORLD.tokenizer.read("<|end|>", position="inside")
    assert list(limited.allowed().nonzero()[0]) == [end]
    tokens += spell(limited, f"<|end|><|start|>assistant{CALLS[0] if tools else FINAL}")
    reasoning, text, calls = read(tokens + WORLD.follow(limited, 3))
    assert reasoning == "ab\N{GREEK SMALL LETTER ALPHA}"
    validate(calls[0][1] if tools else text)
