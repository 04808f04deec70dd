"""Grammars in llama.cpp's GBNF against regular expressions and llama.cpp's own grammar of JSON."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.text.grammars.grammar import Grammar
from tests.server.grammar_world import WORLDS, spelled

seeds = st.integers(0, 2**32 - 1)

GBNF = [
    (
        'root ::= "a" [b-y]+ (digit | "z")*\ndigit ::= [0-9]{1,3} # one to three',
        "a[b-y]+([0-9]|z)*",
    ),
    ("root ::= word last\nword ::= [a-z]+\nlast ::= [z]", "[a-z]+z"),
    ('root ::= (\n  "yes" |\n  "no"\n) "\\n"?', "(yes|no)\n?"),
    ('root ::= "\\x41" "\\u00e9" "é" "\\U0001F600😀\\"\\\\"', 'Aéé😀😀"' + r"\\"),
    (r"root ::= [^a-z\n\]\\-]{2,4}", r"[^a-z\n\]\\-]{2,4}"),
    ("root ::= [-+]? [0-9]+ | ", "([-+]?[0-9]+)?"),
    ("root ::= . . [é-ü😀]", "(.|\n){2}[é-ü😀]"),
    ('root ::= a-b | \na-b ::= "x"', "x?"),
]


@pytest.mark.parametrize(("gbnf", "regex"), GBNF)
@given(seed=seeds)
@settings(max_examples=4, deadline=None)
def test_a_gbnf_grammar_allows_what_a_regex_matches(gbnf: str, regex: str, seed: int) -> None:
    for world in WORLDS.values():
        assert re.fullmatch(regex, world.answer("lark", gbnf, seed, nudge="z0"))


@pytest.mark.parametrize(("gbnf", "regex"), GBNF)
def test_every_text_of_a_gbnf_grammar_is_possible(gbnf: str, regex: str) -> None:
    """Texts of the regular expression, as llguidance makes them."""
    world = WORLDS["gemma"]
    for seed in range(3):
        rules = world.grammars.rules(Grammar("lark", gbnf))
        spelled(rules, world, world.answer("regex", regex, seed, nudge="z0"))
        assert rules.allowed()[list(world.ends)].any() or rules.finished


def test_llama_cpps_json_grammar_gives_json() -> None:
    """As in llama.cpp's grammars/json.gbnf."""
    grammar = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
# Optional space
ws ::= | " " | "\n" [ \t]{0,20}
"""
    for seed in range(4):
        assert isinstance(json.loads(WORLDS["bytes"].answer("lark", grammar, seed)), dict)
