"""A key never occurs twice in an object, whatever keys the schema leaves open."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.text.grammars.grammar import Grammar
from tests.server.fakes import byte_level
from tests.server.grammar_world import WORLDS, World, accepts

if TYPE_CHECKING:
    from hearthd.sampling.constraint import Constraint

OBJECT: dict[str, Any] = {"type": "object"}
OPEN: dict[str, dict[str, Any]] = {
    "any object": OBJECT,
    "listed and others": {**OBJECT, "properties": {"z": {}}, "additionalProperties": True},
    "a schema of values": {**OBJECT, "additionalProperties": {"type": ["integer", "object"]}},
    "patterns": {**OBJECT, "patternProperties": {"^[a-f]{1,2}$": {"type": ["integer", "object"]}}},
    "any value": {"type": ["object", "array"]},
}
ONE_OF_TWO = {**OBJECT, "patternProperties": {"^[ab]$": {"type": "integer"}}}


# Parts of texts that words should hold.
WRITTEN = [
    '"a":1,"a":2',
    r'"\"a":1',
    r'"b\n":2',
    r'":"\""',
    r'\u000a":',
    '"},',
    '":{"a":',
    "3},2},1},",
]


def json_words() -> World:
    """A tokenizer whose words hold several quotes, keys and members."""
    members: tuple[Any, ...] = ((1,), {}, "x")
    objects = (dict(zip(names, members, strict=True)) for names in itertools.permutations("abc"))
    texts = [json.dumps(value, separators=(",", ":")) for value in objects]
    return World(byte_level(corpus=[*texts, *texts, *WRITTEN], vocab_size=700, use_regex=False))


ALL_WORLDS = {**WORLDS, "json": json_words()}


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def rules(world: str, schema: Any) -> Any:
    return ALL_WORLDS[world].grammars.rules(Grammar("json_schema", json.dumps(schema)))


def test_the_words_of_a_vocabulary_hold_whole_members() -> None:
    words = list(ALL_WORLDS["json"].tokenizer.words)
    assert any(word.count(b'"') > 2 and b'":' in word and b',"' in word for word in words)
    assert b"}," in words
    assert any(b"\\" in word and b'":' in word for word in words)


def object_sizes(text: str) -> list[int]:
    """How many keys each object in a text has; fails if one has a key twice."""
    sizes: list[int] = []

    def counted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        sizes.append(len(pairs))
        return unique(pairs)

    decoder, at = json.JSONDecoder(object_pairs_hook=counted), 0
    while (at := text.find("{", at)) >= 0:
        try:
            _, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            at += 1
    return sizes


def sampled(world: World, state: Constraint, seed: int, nudge: str = '"",,}:1ab') -> str:
    tokens = world.follow(state, seed, nudge=nudge)
    return world.tokenizer.decode(tokens, special=True)


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.parametrize("world", ALL_WORLDS)
def test_random_answers_have_unique_keys(world: str, name: str) -> None:
    texts = [sampled(ALL_WORLDS[world], rules(world, OPEN[name]), seed) for seed in range(8)]
    assert max(size for text in texts for size in object_sizes(text)) > 1


@pytest.mark.parametrize("schema", OPEN.values(), ids=OPEN)
@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ('{"a":1,"b":2}', True),
        ('{"a":1,"a":2}', False),
        ('{"a":1, "b":2, "a":3}', False),
        ('{"a":{"a":{"a":1}}}', True),
        ('{"a":{"b":1,"b":1}}', False),
        ('{"a":{"b":1},"b":{"b":1},"a":2}', False),
    ],
)
def test_a_repeated_key_is_not_allowed(schema: dict[str, Any], text: str, valid: bool) -> None:
    assert accepts("json_schema", json.dumps(schema), text) is valid


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (r'{"\\":1,"\"":2,"\\\"":3}', True),
        (r'{"\\":1,"\\":2}', False),
        (r'{"\"a":1,"\"a":2}', False),
        (r'{"\n":1,"\t":2,"n":3}', True),
        (r'{"\n":1,"\u000a":2}', False),
        (r'{"\u001f":1,"\u001e":2}', True),
        (r'{"\u001f":1,"\u001F":2}', False),
        (r'{"é":1,"e":2,"è":3}', True),
        (r'{"é":1,"é":2}', False),
        (r'{"a":"\",\"a\":","b":"a"}', True),
        ('{"":1,"":2}', False),
        (r'{"\"a":1,"\"a":1}', False),
        (r'{"b\n":2,"b\n":2}', False),
        ('{"x":[{"a":1},{"a":1},"a","a"],"a":[]}', True),
        ('{"x":[{"a":1},{"a":1,"a":1}]}', False),
        ('{"x":[1,2],"x":1}', False),
    ],
)
@pytest.mark.parametrize("world", ALL_WORLDS)
def test_keys_are_compared_as_they_are_meant(world: str, text: str, valid: bool) -> None:
    assert accepts("json_object", "", text, world=ALL_WORLDS[world]) is valid


# llguidance wants these characters escaped, and no others.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=4)
values = st.recursive(
    st.none() | st.integers(-99, 99) | texts,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(texts, parts, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(texts, values, max_size=5), st.booleans())
def test_every_object_with_unique_keys_is_allowed(value: dict[str, Any], spaces: bool) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=None if spaces else (",", ":"))
    assert accepts("json_object", "", text)


@pytest.mark.parametrize("world", ALL_WORLDS)
@pytest.mark.parametrize("seed", range(6))
def test_an_object_without_further_keys_ends(world: str, seed: int) -> None:
    schema = {**OBJECT, "additionalProperties": ONE_OF_TWO, "minProperties": 1}
    tokens = ALL_WORLDS[world].follow(rules(world, schema), seed, nudge='"",,}1ab')
    json.loads(ALL_WORLDS[world].tokenizer.decode(tokens), object_pairs_hook=unique)


def comma_after(world: str, schema: Any, text: str, more: str = "") -> bool:
    """Whether a comma may follow a text, and then more of it."""
    state, tokenizer = rules(world, schema), ALL_WORLDS[world].tokenizer
    (comma,) = tokenizer.read(",", special=False, position="inside")
    for part in (text, more):
        for token in tokenizer.read(part, special=False, position="inside"):
            assert state.allowed()[token]
            state.accept(token)
    return bool(state.allowed()[comma])


@pytest.mark.parametrize("world", ALL_WORLDS)
def test_no_comma_follows_when_every_key_is_used(world: str) -> None:
    for text, more in {'{"a":1': True, '{"b":1': True, '{"b":1,"a":2': False}.items():
        assert accepts("json_schema", json.dumps(ONE_OF_TWO), text + "}", world=ALL_WORLDS[world])
        assert comma_after(world, ONE_OF_TWO, text) is more, text


@pytest.mark.parametrize("world", ALL_WORLDS)
def test_what_one_object_may_have_says_nothing_of_another(world: str) -> None:
    inner = {**OBJECT, "additionalProperties": ONE_OF_TWO}
    assert not comma_after(world, inner, '{"x":{"a":1,"b":2', "3")
    three = {**OBJECT, "patternProperties": {"^[abc]$": {"type": "integer"}}}
    pair = {"type": "array", "prefixItems": [three, ONE_OF_TWO]}
    assert comma_after(world, pair, '[{"a":1,"b":2')
    assert not comma_after(world, pair, '[{"a":1,"b":2', '},{"a":1,"b":2')
    assert comma_after(world, pair, '[{"a":1,"b":2', '},{"a":1')
