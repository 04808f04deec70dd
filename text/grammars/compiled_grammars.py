"""Compiled grammars, and the memory that all of them take.

llguidance's lexer grows while answers use it, and all answers with a grammar share it. So the
memory is estimated from the work of the lexer, which the library counts. If the estimates exceed
GRAMMAR_MEMORY, grammars that no answer uses are dropped, and answers compile theirs again.
"""

from __future__ import annotations

import json
import re
import threading
import weakref
from typing import TYPE_CHECKING, Any

import llguidance

from hearthd.bundle import GRAMMAR_MEMORY
from hearthd.text.errors import GrammarsFull

if TYPE_CHECKING:
    from hearthd.text.grammars.grammar import Grammar

_MAX_KEPT = 8
# Limits of llguidance: work before the first token, which a schema of 500 texts with formats takes
# more than half of; work of a token, at most 12 bytes each, and 110 for text that is the only one
# possible; and states, of up to 1 kB.
LIMITS = llguidance.LLParserLimits(
    initial_lexer_fuel=200_000, step_lexer_fuel=200_000, max_lexer_states=25_000
)
# Estimated bytes of a compiled grammar: per byte of its text, and per unit of the lexer's work.
_TEXT_BYTES = {"calls": 24, "lark": 220}
_SCHEMA_BYTES = 150
_WORK_BYTES = 27
_ANSWER_BYTES = 220  # per byte of the longest answer, with the text that must follow it
_MIN_GROWTH = 1_500_000  # bytes, of a grammar that is compiled again
_STATISTICS = re.compile(r"^Parser: (\{[^{}]*\})", re.MULTILINE)
_NO_TOKEN = 2**31 - 1


class CompiledGrammar:
    """A grammar in its first state. Its lexer is shared by all copies of the state.

    users   the answers that use it
    is_new  whether no answer has used it
    """

    def __init__(self, matcher: llguidance.LLMatcher, grammar: Grammar) -> None:
        size = len(grammar.value.encode())
        self._first = matcher
        self._text_memory = _TEXT_BYTES.get(grammar.type, _SCHEMA_BYTES) * size
        self._grown = self._grown_before = 0
        self.is_new = True
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def memory(self) -> int:
        """Estimated bytes."""
        return self._text_memory + self._grown

    def state(self) -> llguidance.LLMatcher:
        """The state of an empty answer."""
        self.is_new = False
        return self._first.deep_copy()

    @property
    def has_grown(self) -> bool:
        """Whether compiling it again frees memory."""
        return self._grown - self._grown_before > _MIN_GROWTH

    def begin_growth(self, matcher: llguidance.LLMatcher) -> None:
        """Compiled again, it takes what it takes now."""
        self.measure(matcher)
        self._grown_before = self._grown

    def measure(self, matcher: llguidance.LLMatcher) -> None:
        """Estimate the memory again, from the state of an answer."""
        self._grown = max(self._grown, _grown(matcher))


class CompiledGrammars:
    """Keeps the latest grammars while there is memory for them; for any thread."""

    def __init__(self, memory: int = GRAMMAR_MEMORY) -> None:
        self._limit = memory
        self._lock = threading.Lock()
        self._kept: dict[Grammar, CompiledGrammar] = {}  # from the one that was used longest ago
        self._live: weakref.WeakSet[CompiledGrammar] = weakref.WeakSet()

    @property
    def memory(self) -> int:
        """Estimated bytes of all grammars that are kept or used."""
        kept = set(self._kept.values())
        return sum(each.memory for each in self._live if each.users or each in kept)

    def get(self, grammar: Grammar) -> CompiledGrammar | None:
        """A grammar that is kept."""
        with self._lock:
            if (compiled := self._kept.pop(grammar, None)) is not None:
                self._kept[grammar] = compiled
            return compiled

    def keep(self, grammar: Grammar, compiled: CompiledGrammar) -> CompiledGrammar:
        """Keep a grammar, in place of an equal one; returns it. Raises GrammarsFull."""
        with self._lock:
            self._kept.pop(grammar, None)
            self._make_room(compiled.memory)
            if (taken := self.memory) and taken + compiled.memory > self._limit:
                raise GrammarsFull(
                    "the grammars and tools of other answers take all memory for them; retry later"
                )
            self._live.add(compiled)
            self._kept[grammar] = compiled
            if len(self._kept) > _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return compiled

    def are_full(self) -> bool:
        """Whether the memory is exceeded even without the grammars that no answer uses."""
        with self._lock:
            self._make_room(0)
            return self.memory > self._limit

    def _make_room(self, size: int) -> None:
        """Drop unused grammars until there is memory for `size` bytes."""
        for grammar in list(self._kept):
            if self.memory + size <= self._limit:
                break
            if not self._kept[grammar].users:
                del self._kept[grammar]


def _grown(matcher: llguidance.LLMatcher) -> int:
    """Estimated bytes of a lexer and a state; only errors of the library have its statistics."""
    state = matcher.deep_copy()
    state.consume_token(_NO_TOKEN)
    if not (found := _STATISTICS.search(state.get_error())):
        return 0
    statistics: dict[str, int] = json.loads(found[1])
    return _WORK_BYTES * statistics["lexer_cost"] + _ANSWER_BYTES * statistics["definitive_bytes"]
