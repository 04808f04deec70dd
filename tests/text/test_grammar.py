"""Grammars against validators and matchers that are not llguidance, with random tokens."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.sampling.constraint import ConstraintFailed
from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar, Grammars, GrammarType
from hearthd.text.tokenizer import Tokenizer
from tests.server.fakes import BOS, EOS, gemma_like
from tests.server.grammar_world import WORLDS, World, spelled

if TYPE_CHECKING:
    from collections.abc import Callable

seeds = st.integers(0, 2**32 - 1)
worlds = st.sampled_from(sorted(WORLDS)).map(WORLDS.__getitem__)
few = settings(max_examples=25, deadline=None)

# Families of schemas; each is put into the ones that have members.
names = st.sampled_from(["a", "b", "the fox", "é", 'q"', "x\\y"])
leaves = st.one_of(
    st.sampled_from([{"type": t} for t in ("string", "integer", "number", "boolean", "null")]),
    st.tuples(st.integers(-50, 50), st.integers(0, 99)).map(
        lambda at: {"type": "integer", "minimum": at[0], "maximum": at[0] + at[1]}
    ),
    st.tuples(st.integers(0, 3), st.integers(0, 5)).map(
        lambda at: {"type": "string", "minLength": at[0], "maxLength": at[0] + at[1]}
    ),
    st.sampled_from(
        [
            {"type": "string", "pattern": "^[a-f]{2,4}$"},
            {"enum": ["x", 1, None, [2]]},
            {"const": {"k": [True, "ü"]}},
            {"type": "integer", "multipleOf": 3},
            {"type": ["integer", "null"]},
        ]
    ),
)


def objects(members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(
        st.dictionaries(names, members, min_size=1, max_size=3), st.integers(0, 3)
    ).map(
        lambda at: {
            "type": "object",
            "properties": at[0],
            "required": sorted(at[0])[: at[1]],
            "additionalProperties": False,
        }
    )


def arrays(members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(members, st.integers(0, 2), st.integers(0, 2)).map(
        lambda at: {
            "type": "array",
            "items": at[0],
            "minItems": at[1],
            "maxItems": at[1] + at[2],
        }
    )


schemas = st.recursive(
    leaves,
    lambda members: st.one_of(
        objects(members),
        arrays(members),
        st.lists(members, min_size=1, max_size=3).map(lambda many: {"anyOf": many}),
    ),
    max_leaves=5,
)
referring = schemas.map(
    lambda one: {
        "$defs": {"one": one},
        "type": "array",
        "prefixItems": [{"$ref": "#/$defs/one"}],
        "minItems": 1,
        "items": False,
    }
)


@few
@given(worlds, schemas | referring, seeds)
def test_an_answer_is_valid_under_its_schema(
    world: World, schema: dict[str, Any], seed: int
) -> None:
    answer = world.answer("json_schema", json.dumps(schema), seed)
    jsonschema_rs.Draft202012Validator(schema).validate(json.loads(answer))


@few
@given(worlds, seeds)
def test_json_object_gives_a_json_object(world: World, seed: int) -> None:
    assert isinstance(json.loads(world.answer("json_object", "", seed)), dict)


@few
@given(
    worlds,
    seeds,
    st.sampled_from(
        [
            "[a-z]{2,5}",
            "(yes|no|maybe)?!",
            "the [a-z]+ (fox|dog)s?",
            r"[0-9]{4}-[0-9]{2}",
            "(ab|ba)*c",
            "[^a-z]{1,4}é+z",
            r'"(\\[nt"]|[^"\\\x00-\x1f])*"',
        ]
    ),
)
def test_a_regex_matches_the_whole_answer(world: World, seed: int, regex: str) -> None:
    answer = world.answer("regex", regex, seed)
    assert re.fullmatch(regex, answer)


@few
@given(worlds, seeds)
def test_a_lark_grammar_can_nest(world: World, seed: int) -> None:
    """No regex can say this: it needs a parser."""
    grammar = 'start: "(" start* ")" | "[" start* "]" | "x"'
    answer = world.answer("lark", grammar, seed, nudge="x)]")
    while len(shorter := re.sub(r"\(x*\)|\[x*\]", "x", answer)) < len(answer):
        answer = shorter
    assert answer == "x"


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@few
@given(worlds, seeds, st.lists(texts, min_size=1, max_size=5))
def test_an_answer_is_one_of_the_choices(world: World, seed: int, choices: list[str]) -> None:
    assert world.answer("choice", json.dumps(choices), seed) in choices


def test_every_choice_is_possible() -> None:
    choices = ["a", "ab", "abc", "the fox", "é\n\"'\\", "\x7f\x00"]
    answers = {WORLDS["gemma"].answer("choice", json.dumps(choices), seed) for seed in range(200)}
    assert answers == set(choices)


def refusal(grammar_type: GrammarType, value: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        WORLDS["gemma"].grammars.rules(Grammar(grammar_type, value, "where.it.was"))
    assert caught.value.field == "where.it.was"
    return caught.value


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "array", "minContains": 2}, "minContains"),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, "propertyNames"),
        ({"unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"unevaluatedItems": False}, "unevaluatedItems"),
        ({"oneOf": [{"type": "string"}, {"type": "string", "minLength": 3}]}, "oneOf"),
        ({"type": "string", "format": "color"}, "color"),
        ({"type": "string", "pattern": "^(?=a)b"}, "look-ahead"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "http://127.0.0.1:9/schema.json"),
        ({"$ref": "#/$defs/none"}, "none"),
        ({"$dynamicRef": "#x"}, "$dynamicRef"),
        ({"type": "integr"}, "integr"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
        ({"not": {}, "x-guidance": {"lenient": True}}, "not"),
        ({"properties": {"a": {"items": {"not": {"pattern": "a"}}}}}, "not"),
        (False, "object"),
        ([1], "object"),
    ],
)
def test_an_unsupported_schema_keyword_is_rejected_by_name(schema: object, keyword: str) -> None:
    assert keyword in refusal("json_schema", json.dumps(schema)).expected


@pytest.mark.parametrize(
    ("grammar_type", "value", "reason"),
    [
        ("regex", "[a", "unclosed"),
        ("regex", r"(a)\1", "backreferences"),
        ("regex", "", "empty"),
        ("lark", "start: other", "other"),
        ("lark", 'start: "a', "lexer error"),
        ("lark", "start: start", "grammar"),
        ("lark", 'start: ""', "empty"),
        ("lark", 'start: %json {"not": {}}', "not"),
        ("lark", 'start: %json {"not": {}, "x-guidance": {"lenient": true}}', "x-guidance"),
        ("lark", "root ::= other", "other: no rule has this name"),
        ("lark", 'start ::= "a"', "expected a rule root"),
        ("lark", 'root ::= ("a"', "unbalanced parentheses"),
        ("lark", 'root ::= "a")', "unbalanced parentheses"),
        ("lark", 'root ::= "a" ~', "unexpected text"),
        ("lark", "root ::= *", "nothing to repeat"),
        ("lark", "root ::= []", "an empty set"),
        ("lark", 'root ::= "a"\nroot ::= "b"', "a second rule"),
        ("json_schema", "{", "EOF"),
    ],
)
def test_an_invalid_grammar_is_rejected(grammar_type: GrammarType, value: str, reason: str) -> None:
    assert reason in refusal(grammar_type, value).expected


@pytest.mark.parametrize(
    ("grammar_type", "value"),
    [("lark", 'root ::= "secret'), ("json_schema", '{"minContains": {"secret": 1}}')],
)
def test_logs_do_not_quote_a_grammar(grammar_type: GrammarType, value: str) -> None:
    assert refusal(grammar_type, value).logged == "where.it.was: expected another value"


def test_a_grammar_that_matches_nothing_is_rejected() -> None:
    expected = refusal("regex", r"[^\s\S]").expected
    assert expected == "a valid grammar (grammar: it allows no next token)"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("(", "unclosed group"), ("*a", "repetition operator missing expression")],
)
def test_an_invalid_regex_says_why_without_the_grammar_around_it(pattern: str, reason: str) -> None:
    assert refusal("regex", pattern).expected == f"a valid grammar ({reason})"


def test_a_panic_of_the_library_is_not_shown() -> None:
    # The library gives the tokenizer a text that is longer than this context.
    tokenizer = Tokenizer(gemma_like(), bos=BOS, context=64)
    grammars = Grammars(tokenizer, vocab_size=gemma_like().get_vocab_size(), ends=(EOS,))
    with pytest.raises(InvalidRequest, match=r"\(grammar: it cannot be compiled\)"):
        grammars.rules(Grammar("lark", 'start: x\nx: "a" x'))


def test_a_model_without_end_tokens_rejects_grammars() -> None:
    tokenizer = WORLDS["gemma"].tokenizer
    with pytest.raises(InvalidRequest, match="ends an answer"):
        Grammars(tokenizer, vocab_size=300, ends=()).rules(Grammar("regex", "a"))


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


HOSTILE: list[tuple[GrammarType, Callable[[], str]]] = [
    ("regex", lambda: "(a?){30000}a{30000}"),
    ("regex", lambda: "(a{1,1000}){1,1000}"),
    ("regex", lambda: "(.*a){200}.{300}"),
    ("regex", lambda: "(x+x+)+y"),
    ("regex", lambda: "(" * 5000 + ")" * 5000),
    ("regex", lambda: "|".join(f"a{{{i}}}.*b{{{i}}}" for i in range(1, 300))),
    ("regex", lambda: "a" * 70_000),
    ("lark", lambda: "start: e\ne: e e e e | e e | " + " | ".join(f'"{i}"' for i in range(300))),
    ("json_schema", lambda: json.dumps(_nested(400))),
    (
        "json_schema",
        lambda: json.dumps(
            {
                "allOf": [
                    {"anyOf": [{"properties": {f"{i}{j}": {}}} for j in range(9)]} for i in range(9)
                ]
            }
        ),
    ),
    ("json_schema", lambda: '{"enum": [' + ",".join(f'"{i}"' for i in range(9000)) + "]}"),
    ("json_schema", lambda: '{"type": "string", "minLength": 1000000}'),
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_grammars_take_bounded_time(number: int) -> None:
    grammar_type, value = HOSTILE[number][0], HOSTILE[number][1]()
    world = WORLDS["gemma"]
    began = time.process_time()
    try:
        rules = world.grammars.rules(Grammar(grammar_type, value))
        random = np.random.default_rng(0)
        for _ in range(50):
            if rules.finished:
                break
            rules.accept(int(random.choice(np.flatnonzero(rules.allowed()))))
    except (InvalidRequest, ConstraintFailed):
        pass
    assert time.process_time() - began < 5


def test_a_grammar_that_fails_while_generating_raises() -> None:
    """This one has a beginning, and too many states behind it."""
    rules = WORLDS["gemma"].grammars.rules(Grammar("regex", "[xy]{20}(a?){30000}a{30000}"))

    def go_on() -> None:
        for _ in range(40):
            rules.accept(int(np.flatnonzero(rules.allowed())[-1]))

    with pytest.raises(ConstraintFailed, match="too much work or memory"):
        go_on()


@pytest.mark.parametrize(("seconds", "tokens"), [(0.05, 200), (0.1, 20), (0.55, 2), (1.1, 0)])
def test_an_answer_ends_when_its_rules_take_too_long(
    seconds: float, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token may take 50 ms of a core, and all of them a second more; `tokens` are accepted."""
    rules = WORLDS["gemma"].grammars.rules(Grammar("regex", "[xy]{200}"))
    clock = itertools.count()
    monkeypatch.setattr(time, "thread_time", lambda: next(clock) * seconds)
    accepted = 0
    with contextlib.suppress(ConstraintFailed):
        while not rules.finished:
            rules.accept(int(np.flatnonzero(rules.allowed())[0]))
            accepted += 1
    assert tokens - 1 <= accepted <= tokens


def test_a_forbidden_token_is_not_accepted() -> None:
    rules = WORLDS["gemma"].grammars.rules(Grammar("regex", "abc"))
    with pytest.raises(ConstraintFailed):
        rules.accept(int(np.flatnonzero(~rules.allowed())[30]))


@pytest.mark.parametrize("name", WORLDS)
def test_answers_with_one_grammar_are_independent(name: str) -> None:
    world = WORLDS[name]
    grammar = Grammar("regex", "ab+|cd+|e")
    first, second, third = (world.grammars.rules(grammar) for _ in range(3))
    assert spelled(first, world, "abb")[-1] is False
    assert spelled(second, world, "cd")[-1] is False
    assert spelled(third, world, "e") == [True]
    assert first.allowed()[list(world.ends)].all()
    (d,) = world.tokenizer.read("d", special=False)
    assert second.allowed()[d]
    assert not first.allowed()[d]


def test_a_grammar_is_compiled_once() -> None:
    grammars = World(gemma_like()).grammars
    first = grammars.compiled(Grammar("json_schema", '{"type": "integer"}', "json_schema"))
    again = Grammar("json_schema", '{"type": "integer"}', "response_format.schema")
    assert grammars.compiled(again) is first
