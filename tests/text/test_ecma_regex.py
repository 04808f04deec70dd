"""Patterns of schemas, against Node.js, which implements ECMA-262."""

from __future__ import annotations

import json

import pytest

from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.ecma_regex import UnsupportedRegex, translated
from tests.golden.record_ecma_regex import FILE
from tests.server.grammar_world import accepts


def allows(pattern: str, text: str) -> bool:
    schema = json.dumps({"type": "string", "pattern": pattern})
    return accepts("json_schema", schema, json.dumps(text, ensure_ascii=False))


def test_a_pattern_allows_what_ecma_262_allows() -> None:
    rejected = []
    for pattern, matching, other in json.loads(FILE.read_text(encoding="utf-8")):
        try:
            for text in [*matching, *other]:
                assert allows(pattern, text) is (text in matching), (pattern, text)
        except InvalidRequest as error:
            # Patterns that match nothing, and anchors that a grammar cannot enforce.
            rejected.append((pattern, "lookarounds" in error.expected or not matching))
    assert all(expected for _, expected in rejected), rejected
    assert 0 < len(rejected) < 12


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("^[[a]]$", ["[]", "a]"], ["a", "[", "]"]),
        ("^[a-z&&[^b]]$", ["a]", "&]", "[]", "^]"], ["a", "c"]),
        (r"^[\w--_]$", ["a", "_", "-"], ["é"]),
        ("^[a~~b]$", ["a", "~", "b"], [""]),
        (r"^\d\w\s$", ["1a ", "1_\ufeff"], ["٣a ", "1é "]),
        ("^.$", ["a", "\x85"], ["\n", "\r", "\u2028", "\u2029"]),
        (r"^\S$", ["\x85"], ["\ufeff"]),
        ("^[^]$", ["a", "\n"], ["", "ab"]),
        ("^a{$", ["a{"], ["a"]),
        (r"^\cJ\x41\u0042\u{43}\/$", ["\nABC/"], [""]),
        ("b|^a$", ["b", "abc", "a"], ["ac"]),
        ("^(?:a|b$)", ["a", "ac", "b"], ["bc", "ca"]),
        (r"^[\b\-]$", ["\b", "-"], ["b"]),
        ("^😀{2}$", ["😀😀"], ["😀"]),
        (r"^(?<year>\d{4})-\d\d$", ["2026-11"], ["2026-1"]),
    ],
)
def test_a_pattern_has_one_meaning(pattern: str, matching: list[str], other: list[str]) -> None:
    """The answers come from Node.js 20."""
    for text in [*matching, *other]:
        assert allows(pattern, text) is (text in matching), text


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)b", "look-ahead"),
        ("(?!a)b", "look-ahead"),
        ("(?<=a)b", "look-behind"),
        ("(?<!a)b", "look-behind"),
        (r"(a)\1", "backreferences"),
        (r"(?<n>a)\k<n>", "backreferences"),
        ("(?i)a", "the group (?i)"),
        ("(?P<n>a)", "the group (?P<"),
        (r"\bword\b", r"the word boundary \b"),
        (r"\Aa\z", r"the escape \A"),
        ("a++", "nothing to repeat at +"),
        ("a{,3}", "nothing to repeat at {,3}"),
        ("a{3,2}", "numbers in the wrong order in {3,2}"),
        ("^*", "a repeated anchor"),
        ("[b-a]", "a range in the wrong order"),
        ("[a", "an unclosed character class"),
        ("(a", "unbalanced parentheses"),
        ("a)", "unbalanced parentheses"),
        (r"\uD800", r"the escape \uD800, which is not a character"),
        (r"\u{110000}", r"the escape \u{110000}, which is not a character"),
        (r"\p{Nonsense}", r"the property \p{Nonsense}"),
        (r"\x{61}", r"the escape \x"),
        ("\\", "the escape \\"),
        ("(" * 500 + ")" * 500, "parentheses that are nested too deeply"),
    ],
)
def test_what_cannot_be_enforced_is_rejected_by_name(pattern: str, reason: str) -> None:
    with pytest.raises(UnsupportedRegex) as caught:
        translated(pattern)
    assert str(caught.value) == reason
    with pytest.raises(InvalidRequest) as rejected:
        allows(pattern, "a")
    assert rejected.value.expected == f"a regular expression without {reason} at pattern"


def test_patterns_of_keys_are_translated_too() -> None:
    schema = json.dumps({"type": "object", "patternProperties": {r"^\d$": {"type": "null"}}})
    assert accepts("json_schema", schema, '{"1":null}')
    assert not accepts("json_schema", schema, '{"٣":null}')
    same = {r"^\d$": {"minimum": 2}, "^[0-9]$": {"type": "integer", "maximum": 3}}
    schema = json.dumps({"type": "object", "patternProperties": same})
    for number in range(5):
        assert accepts("json_schema", schema, f'{{"1":{number}}}') is (2 <= number <= 3)
