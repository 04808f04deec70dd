"""Reasoning is separated from text, in pieces as in one, and precedes what a grammar constrains."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.text.grammars.answer_constraint import AnswerRules, Trigger
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.reasoning import TAGS, Reasoning, ReasoningFilter, reasoning_tags
from tests.server import templates
from tests.server.fakes import byte_level, gemma_like
from tests.server.grammar_world import World

THINK = TAGS[0]
HARMONY = next(tags for tags in TAGS if tags.opening)
_THOUGHT = "<|channel|>analysis<|message|>2 + 2<|end|>"
_ASSISTANT, _FINAL = "<|start|>assistant", "<|channel|>final<|message|>"
_CALL = " to=functions.f<|channel|>commentary json<|message|>{}"


def read(text: str, cuts: list[int], **fields: Any) -> tuple[str, str]:
    """What a filter makes of a text that comes in pieces, cut at these places."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    reasoning_filter = ReasoningFilter(Reasoning(**{"tags": THINK, "begun": False, **fields}))
    parts = [reasoning_filter.push(text[a:b]) for a, b in itertools.pairwise(places)]
    parts.append(reasoning_filter.flush())
    return "".join(part[0] for part in parts), "".join(part[1] for part in parts)


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("no reasoning", {}, ("", "no reasoning")),
        ("<think>\n2 + 2\n</think>\n\n4 ", {}, ("2 + 2", "4 ")),
        (" \n<think>a  b</think>c", {}, ("a  b", "c")),
        ("2 + 2\n</think>\n4", {"begun": True}, ("2 + 2", "4")),
        ("<think>cut off </thi", {}, ("cut off </thi", "")),
        ("cut off", {"begun": True}, ("cut off", "")),
        ("<think></think>4", {}, ("", "4")),
        ("<think>a</think>b<think>c</think>", {}, ("a", "b<think>c</think>")),
        ("a <think>b</think>", {}, ("", "a <think>b</think>")),
        ("<thin", {}, ("", "<thin")),
        ("<think>a</think>", {"possible": False}, ("", "<think>a</think>")),
        ("<think>a</think>b", {"split": False}, ("", "<think>a</think>b")),
        ("a</think>b", {"split": False, "begun": True}, ("", "a</think>b")),
    ],
)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_the_division_into_pieces_makes_no_difference(
    text: str, fields: dict[str, Any], expected: tuple[str, str], cuts: list[int]
) -> None:
    assert read(text, cuts, **fields) == expected


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        (f"{_THOUGHT}{_ASSISTANT}{_FINAL}4 ", {}, ("2 + 2", "4 ")),
        (f"{_FINAL} 4 < 5", {}, ("", " 4 < 5")),
        (f"{_THOUGHT}{_ASSISTANT}{_CALL}", {}, ("2 + 2", f"{_ASSISTANT}{_CALL}")),
        (
            f"<|channel|>commentary<|message|>I call f.<|end|>{_ASSISTANT}{_THOUGHT}{_ASSISTANT}"
            f"{_CALL}",
            {},
            ("2 + 2", f"I call f.{_ASSISTANT}{_CALL}"),
        ),
        (f"{_THOUGHT}{_ASSISTANT}{_THOUGHT}{_ASSISTANT}{_FINAL}4", {}, ("2 + 22 + 2", "4")),
        ("<|channel|>analysis<|message|>cut off", {}, ("cut off", "")),
        (f"{_THOUGHT}<|start|>assis", {}, ("2 + 2", "")),
        ("<|channel|>fin", {}, ("", "")),
        ("the rest", {"possible": False}, ("", "the rest")),
        ("the rest", {"begun": True}, ("the rest", "")),
        (f"{_THOUGHT}{_ASSISTANT}", {"split": False}, ("", f"{_THOUGHT}{_ASSISTANT}")),
    ],
)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_the_division_of_messages_into_pieces_makes_no_difference(
    text: str, fields: dict[str, Any], expected: tuple[str, str], cuts: list[int]
) -> None:
    assert read(text, cuts, tags=HARMONY, **fields) == expected


@pytest.mark.parametrize("tags", TAGS)
def test_the_template_selects_the_tags(tags: Any) -> None:
    assert reasoning_tags(f"{{{{ '{tags.start}' + '{tags.end}' }}}}") is tags
    assert reasoning_tags(templates.CHATML) is None


# Tags that are tokens, and tags that are words of several tokens.
WORLDS = {
    "tokens": World(gemma_like(special=[THINK.start, THINK.end, "<end>"])),
    "text": World(byte_level(special=["<end>"])),
}
JSON = Grammar("json_schema", '{"enum": [1, "the fox"]}')


def constrained(world: str, **fields: Any) -> Any:
    reasoning = Reasoning(**{"tags": THINK, "begun": False, **fields})
    return WORLDS[world].constraints.constraint(AnswerRules(grammar=JSON, reasoning=reasoning))


def spell(world: str, constraint: Any, text: str) -> None:
    for token in WORLDS[world].tokenizer.read(text):
        allowed = constraint.allowed()
        assert allowed is None or allowed[token], text
        constraint.accept(token)


def answer(world: str, constraint: Any) -> Any:
    tokens = WORLDS[world].follow(constraint, 1)
    return json.loads(WORLDS[world].tokenizer.decode(tokens))


@pytest.mark.parametrize("world", WORLDS)
def test_a_grammar_applies_after_the_reasoning(world: str) -> None:
    constraint = constrained(world, begun=True)
    spell(world, constraint, "the dog: {1</think>\n")
    assert answer(world, constraint) in (1, "the fox")
    constraint = constrained(world, begun=False, possible=False)
    assert answer(world, constraint) in (1, "the fox")


def test_a_start_tag_of_one_token_begins_reasoning_before_a_grammar() -> None:
    constraint = constrained("tokens")
    spell("tokens", constraint, "<think>the dog</think>")
    assert answer("tokens", constraint) in (1, "the fox")
    constraint = constrained("tokens")
    spell("tokens", constraint, "1")
    assert constraint.finished
    (tag,) = WORLDS["tokens"].tokenizer.read("<think>")
    constraint = constrained("tokens")
    spell("tokens", constraint, '"')
    assert not constraint.allowed()[tag]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("budget", [0, 1, 3])
@pytest.mark.parametrize("begun", [True, False])
def test_the_budget_ends_the_reasoning(world: str, budget: int, begun: bool) -> None:
    reasoning = Reasoning(tags=THINK, begun=begun, budget=budget)
    constraint = WORLDS[world].constraints.constraint(AnswerRules(reasoning=reasoning))
    tokenizer = WORLDS[world].tokenizer
    if not begun:
        spell(world, constraint, "<think>")
    words = tokenizer.read("a b c")[:budget]
    for token in words:
        assert constraint.allowed() is None
        constraint.accept(token)
    for token in tokenizer.read("\n</think>\n\n"):
        allowed = constraint.allowed()
        assert allowed is not None
        assert list(allowed.nonzero()[0]) == [token]
        constraint.accept(token)
    assert constraint.allowed() is None
    assert not constraint.finished


def test_a_call_in_the_reasoning_does_not_count() -> None:
    trigger = Trigger(pattern=rb"(?P<call><call>)", only_first=False)
    grammar = Grammar("lark", 'start: "<call>" "x"')
    rules = AnswerRules(
        grammar=grammar, trigger=trigger, reasoning=Reasoning(tags=THINK, begun=True)
    )
    constraint = WORLDS["text"].constraints.constraint(rules)
    spell("text", constraint, "a <call> b </think> c <call")
    assert constraint.allowed() is None
    spell("text", constraint, ">")
    assert not constraint.finished
    spell("text", constraint, "x")
    assert constraint.finished
