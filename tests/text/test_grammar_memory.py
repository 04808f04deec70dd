"""The memory that compiled grammars take: of Linux alone."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from random import Random

import llguidance
import numpy as np
import pytest

from hearthd.bundle import GRAMMAR_MEMORY
from hearthd.runtime.system.free_memory import free_memory
from hearthd.sampling.constraint import ConstraintFailed
from hearthd.text.errors import GrammarsFull, InvalidRequest
from hearthd.text.grammars.compiled_grammars import CompiledGrammars
from hearthd.text.grammars.grammar import Grammar, Grammars
from tests.server.grammar_world import WORLDS, accepts

_WORLD = WORLDS["gemma"]


def _resident() -> int:
    free_memory()
    line = Path("/proc/self/status").read_text().partition("VmRSS:")[2]
    return 1024 * int(line.split()[0])


def _answers(grammars: Grammars, regex: str, count: int) -> list[bool]:
    """Whether answers with a regular expression reach 150 random tokens."""
    reached = []
    for seed in range(count):
        random = Random(seed)
        with contextlib.suppress(ConstraintFailed, InvalidRequest):
            rules = grammars.rules(Grammar("regex", regex))
            for _ in range(150):
                allowed = rules.allowed().copy()
                allowed[list(_WORLD.ends)] = False
                rules.accept(int(random.choice(np.flatnonzero(allowed))))
            reached.append(True)
            continue
        reached.append(False)
    return reached


def _new_grammars() -> Grammars:
    grammars = Grammars(_WORLD.tokenizer, vocab_size=_WORLD.size, ends=_WORLD.ends)
    grammars.rules(Grammar("regex", "a"))
    return grammars


def test_many_grammars_take_little_memory() -> None:
    """They took 24 MB each, and each waiting request kept its own."""
    grammars = _new_grammars()
    before = _resident()
    requests = [grammars.rules(Grammar("regex", f"(a{{1000}}){{{n}}}")) for n in range(1000, 1016)]
    assert _resident() - before < 2 * GRAMMAR_MEMORY
    assert requests


def test_long_answers_with_one_grammar_take_little_memory() -> None:
    """The lexer grew with each token of each answer, by up to 300 MB."""
    grammars = _new_grammars()
    grammars._kept = CompiledGrammars(memory=1_000_000)
    assert _answers(grammars, "[a-z]*a[a-z]{200}", 10) == [True] * 10
    assert grammars._kept.memory < 3_000_000


def test_the_estimate_is_at_least_what_a_grammar_takes() -> None:
    grammars = _new_grammars()
    for regex in ("[ab]*a[ab]{3000}", "[a-z]*a[a-z]{200}", r"(\w+ ){1,500}", "(a{1000}){1000}"):
        before, estimated = _resident(), grammars._kept.memory
        rules = grammars.rules(Grammar("regex", regex))
        grown = _resident() - before
        assert grown < 1.2 * (grammars._kept.memory - estimated) + 1_000_000
        assert rules


def test_a_grammar_whose_lexer_is_used_up_is_compiled_again() -> None:
    """The same request was a 400 until other grammars evicted this one."""
    grammars = _new_grammars()
    for _ in range(3):
        assert grammars.rules(Grammar("regex", "(a{1000}){1000}")).allowed().any()


def test_an_answer_goes_on_when_the_lexer_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    few = llguidance.LLParserLimits(max_lexer_states=600)
    monkeypatch.setattr("hearthd.text.grammars.grammar.LIMITS", few)
    assert _answers(_new_grammars(), "[a-z]*a[a-z]{200}", 4) == [True] * 4


def test_grammars_of_other_answers_leave_no_memory() -> None:
    kept = CompiledGrammars(memory=1_000_000)
    first, second = (Grammar("lark", f"start: /{letter * 4000}/") for letter in "ab")
    used = _new_grammars().compiled(first)
    kept.keep(first, used)
    kept.keep(second, _new_grammars().compiled(second))  # in place of the first one
    assert kept.get(first) is None
    user = contextlib.nullcontext()
    kept.keep(first, used).users.add(user)
    with pytest.raises(GrammarsFull, match="take all memory for them; retry later"):
        kept.keep(second, _new_grammars().compiled(second))
    used.users.discard(user)
    assert kept.keep(second, _new_grammars().compiled(second))


def _formats(count: int) -> str:
    formats = ("date-time", "uuid", "email", "ipv6", "uri", "hostname")
    members = {
        f"k{number}": {"type": "string", "format": formats[number % len(formats)]}
        for number in range(count)
    }
    return json.dumps({"type": "object", "properties": members})


def test_a_large_schema_compiles() -> None:
    assert accepts("json_schema", _formats(500), "{}")


def test_a_schema_that_is_too_large_says_what_to_change() -> None:
    with pytest.raises(InvalidRequest, match="expected a smaller grammar: write fewer keys"):
        accepts("json_schema", _formats(1200), "{}")
