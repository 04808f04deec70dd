"""Tokenizers that put a space in front of a text: forced text has none, prompts keep it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.text import tokenizer_json
from hearthd.text.grammars.grammar import Grammar, Grammars
from hearthd.text.space_prefix import after_special, inside
from hearthd.text.templates import special_token_guard as guard
from hearthd.text.tokenizer import Tokenizer
from hearthd.text.tool_calls.call_formats import call_format
from hearthd.text.tool_calls.tools import Tool, ToolUse
from tests.server import fakes
from tests.server.grammar_world import World
from tests.server.tokenizer_forms import FORMS
from tests.text.family_templates import FAMILIES

if TYPE_CHECKING:
    import tokenizers

TEXTS = st.text("the dogfx,\n é€", max_size=20)


def served(name: str) -> tokenizers.Tokenizer:
    whole = tokenizer_json.parse(FORMS[name].to_str())
    return tokenizer_json.build(tokenizer_json.for_answers(whole))


SERVED = {name: served(name) for name in FORMS}
GRAMMARS = {
    name: Grammars(
        Tokenizer(library, bos=None), vocab_size=library.get_vocab_size(), ends=[fakes.EOS]
    )
    for name, library in SERVED.items()
}
ONE_TEXT = [
    Grammar("choice", json.dumps(["the dog"])),
    Grammar("regex", "the dog"),
    Grammar("lark", 'start: "the dog"'),
    Grammar("lark", 'root ::= "the dog"'),
    Grammar("json_schema", '{"const": "the dog"}'),
    Grammar("choice", json.dumps(["e\u0301 fox"])),
]


def forced(name: str, grammar: Grammar) -> list[int]:
    """The tokens of the only answer of a grammar."""
    rules, answer = GRAMMARS[name].rules(grammar), list[int]()
    while True:
        (token, *others) = np.flatnonzero(rules.allowed()).tolist()
        assert not others
        if token == fakes.EOS:
            return answer
        answer.append(token)
        rules.accept(token)
        if rules.finished:
            return answer


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("grammar", ONE_TEXT, ids=lambda grammar: grammar.type)
def test_a_forced_text_has_the_bytes_of_the_grammar(name: str, grammar: Grammar) -> None:
    expected = {"json_schema": '"the dog"'}.get(grammar.type, "the dog")
    if grammar.type == "choice":
        (expected,) = json.loads(grammar.value)
    answer, tokenizer = forced(name, grammar), Tokenizer(SERVED[name], bos=None)
    assert b"".join(map(tokenizer.bytes_of, answer)).decode() == expected
    if "the dog" in expected:
        assert list(tokenizer.read("the dog", position="inside")) in (answer, answer[1:-1])


@pytest.mark.parametrize("name", FORMS)
def test_a_forced_call_has_its_text(name: str) -> None:
    world = World(SERVED[name])
    tool = Tool(name="the_dog", parameters='{"type": "object", "maxProperties": 0}')
    form = call_format(FAMILIES["qwen 3"])
    assert form is not None
    use = ToolUse(format=form, tools=(tool,), required=True, parallel=False)
    answer = world.tokenizer.decode(world.follow(world.constraint(use, None), 3))
    assert answer.startswith("<tool_call>")
    assert '"the_dog"' in answer


@pytest.mark.parametrize("name", FORMS)
@settings(deadline=None)
@given(text=TEXTS)
def test_a_text_inside_another_has_its_own_bytes(name: str, text: str) -> None:
    tokenizer = Tokenizer(SERVED[name], bos=None)
    ids = tokenizer.read(text, position="inside")
    assert b"".join(map(tokenizer.bytes_of, ids)).decode() == text


@pytest.mark.parametrize("name", FORMS)
@settings(deadline=None)
@given(parts=st.lists(TEXTS, min_size=1, max_size=3))
def test_text_after_a_special_token_is_read_as_in_the_whole(name: str, parts: list[str]) -> None:
    """A mark in a prompt makes the server read it in parts."""
    tokenizer, text = Tokenizer(SERVED[name], bos=None), "<eos>".join(parts)
    marked = "\ue000".join(["", text])
    assert guard.encode(marked, tokenizer, "\ue000") == tokenizer.read(text)


@pytest.mark.parametrize("name", FORMS)
@settings(deadline=None)
@given(text=TEXTS)
def test_a_prompt_is_read_as_the_library_reads_it(name: str, text: str) -> None:
    tokenizer = Tokenizer(SERVED[name], bos=fakes.BOS)
    assert tokenizer.encode(text) == tuple(FORMS[name].encode(text).ids)


@pytest.mark.parametrize("name", FORMS)
def test_the_other_tokenizers_have_the_same_ids(name: str) -> None:
    library = SERVED[name]
    for other in (inside(library), after_special(library)):
        assert other.get_vocab() == library.get_vocab()
        added = other.get_added_tokens_decoder()
        assert {i: str(t) for i, t in added.items()} == {
            i: str(t) for i, t in library.get_added_tokens_decoder().items()
        }
    assert (inside(library) is library) == (name in ("never", "composed"))
