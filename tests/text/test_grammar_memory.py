"""The memory that compiled grammars take: of Linux alone."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from hearthd.runtime.system.free_memory import free_memory
from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar, Grammars
from tests.server.grammar_world import WORLDS, accepts

_WORLD = WORLDS["gemma"]


def _resident() -> int:
    free_memory()
    line = Path("/proc/self/status").read_text().partition("VmRSS:")[2]
    return 1024 * int(line.split()[0])


def test_short_grammars_take_little_memory() -> None:
    """They took 130 MB each, and 32 of them were kept."""
    grammars = Grammars(_WORLD.tokenizer, vocab_size=_WORLD.size, ends=_WORLD.ends)
    grammars.rules(Grammar("regex", "a"))
    before = _resident()
    for count in range(1000, 1016):
        with contextlib.suppress(InvalidRequest):
            grammars.rules(Grammar("regex", f"(a{{1000}}){{{count}}}"))
    assert _resident() - before < 400_000_000


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
