"""Grammars of the text that a custom tool takes, enforced inside a call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.grammars.json_text import regex_in_json
from hearthd.text.grammars.lark_regex import lark_regex
from hearthd.text.tool_calls.gemma_calls import FUNCTION_GEMMA
from hearthd.text.tool_calls.json_calls import HERMES, MISTRAL_NAMED
from hearthd.text.tool_calls.tools import Tool, ToolUse
from tests.server.grammar_world import accepts
from tests.text.test_call_grammar import NUDGE, WORLDS, read

if TYPE_CHECKING:
    from hearthd.text.tool_calls.call_format import CallFormat

# What Codex sends for its tool apply_patch: codex-rs/core/src/tools/handlers/tool_apply_patch.lark.
PATCH = Path(__file__).with_name("apply_patch.lark").read_text(encoding="utf-8")
EDITED = """*** Begin Patch
*** Add File: a "b".txt
+say "hi" \\ é
*** Update File: b
@@ x
-\ta
+/
*** End Patch"""


def in_json(lark: str, text: str) -> bool:
    """Whether the grammar for JSON strings allows a text."""
    regex = lark_regex(lark, in_json=True)
    return accepts("regex", regex, json.dumps(text, ensure_ascii=False)[1:-1])


@pytest.mark.parametrize(
    "text",
    [EDITED, f"{EDITED}\n", EDITED.replace("End Patch", "End"), EDITED.replace("+say", "say"), ""],
)
def test_codex_patches_are_the_same_in_json(text: str) -> None:
    assert in_json(PATCH, text) == accepts("lark", PATCH, text)
    assert accepts("regex", lark_regex(PATCH, in_json=False), text) == in_json(PATCH, text)


SIGNS = 'ab"\\/\n\t {-]'


@pytest.mark.parametrize(
    "pattern",
    [
        ".",
        r"\s",
        r"\S",
        r"\W",
        "[^a]",
        r'[\]"a-b]',
        r"[[:space:]]",
        r"\\",
        "/",
        r"\x22",
        r"\n|a{2}",
    ],
)
@settings(max_examples=12, deadline=None)
@given(text=st.text(SIGNS, min_size=1, max_size=2))
def test_a_set_of_characters_is_the_same_in_json(pattern: str, text: str) -> None:
    lark = f"start: /{pattern.replace('/', chr(92) + '/')}/"
    # Python's re has no named classes.
    expected = re.fullmatch(pattern.replace("[[:space:]]", r"\s"), text) is not None
    assert in_json(lark, text) == expected


@pytest.mark.parametrize(
    ("lark", "allowed", "refused"),
    [
        ('start: "a"i~2 ["b"] // end', ["aA", "aab"], ["a", "aabb"]),
        ("start: word (\",\" word)*\n?word.2: LETTER+ | /'[^']*'/\n%import common.LETTER",
         ["a,'b\"'", "ab"], ["a,", ""]),
        ('start: "0".."9" ~ 1..2 -> number\n', ["1", "12"], ["123", "a"]),
        ('start: a{2}\na: "x" | "\\n"', ["x\n", "\n\n"], ["x"]),
        ("start: LF\n%import common.NEWLINE -> LF", ["\n", "\r\n\n"], ["a"]),
    ],
)  # fmt: skip
def test_lark_is_one_regular_expression(lark: str, allowed: list[str], refused: list[str]) -> None:
    assert [in_json(lark, text) for text in (*allowed, *refused)] == [True] * len(allowed) + [
        False
    ] * len(refused)


@pytest.mark.parametrize(
    ("lark", "reason"),
    [
        ("start: a\na: \"(\" a \")\" | \"x\"", "the rule a, which refers to itself"),
        ('start: "a" b', "b, which is not defined"),
        ('start: "a"\n%ignore " "', "%ignore"),
        ("start: X\n%import common.SQL_COMMENT -> X", "%import common.SQL_COMMENT"),
        ("start: /a(?=b)/", "in a regular expression"),
        ("start: /a b/x", "the flag x"),
        ('start: ("a"', "unbalanced parentheses"),
        ("start: " + "\n".join(f"r{n} r{n}\nr{n}:" for n in range(20)) + ' "abc"', "too long"),
    ],
)  # fmt: skip
def test_what_one_regular_expression_cannot_say_is_named(lark: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        lark_regex(lark, in_json=True)


def use(format_: CallFormat, grammar: Grammar) -> ToolUse:
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    tool = Tool(name="f", parameters=json.dumps(schema), input=grammar)
    return ToolUse(format=format_, tools=(tool,), required=True, parallel=False)


@pytest.mark.parametrize("format_", [HERMES, MISTRAL_NAMED, FUNCTION_GEMMA])
@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        (Grammar("regex", r'^"[a-c\n]{1,3}\\/"$'), r'"[a-c\n]{1,3}\\/"'),
        (Grammar("lark", 'start: "x\\"" A+\nA: "y" | "\\n"'), r'x"[y\n]+'),
    ],
)
def test_the_input_of_a_call_matches_its_grammar(
    format_: CallFormat, grammar: Grammar, pattern: str
) -> None:
    for seed in range(3):
        rules = WORLDS["special"].constraint(use(format_, grammar), None)
        tokens = WORLDS["special"].follow(rules, seed, nudge=NUDGE)
        (call,) = read(WORLDS["special"], format_, tokens)[1]
        arguments: Any = json.loads(call.arguments)
        assert set(arguments) == {"input"}
        assert re.fullmatch(pattern, arguments["input"])


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [("start: a\na: a? \"x\"", "refers to itself"), ("start: b", "valid grammar")],
)  # fmt: skip
def test_a_grammar_that_cannot_be_enforced_is_an_error_of_its_field(
    grammar: str, reason: str
) -> None:
    field = "tools[0].format.definition"
    with pytest.raises(InvalidRequest, match=rf"^tools\[0\]\.format\.definition: .*{reason}"):
        WORLDS["text"].constraint(use(HERMES, Grammar("lark", grammar, field)), None)


def test_flags_are_kept() -> None:
    assert accepts("regex", regex_in_json("a.", "is"), "A\\n")
