"""The constraint of one answer, which may begin in the middle of it.

AnswerRules describe it and can be sent to another process; Constraints makes its state.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.text.grammar import Grammars

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from server.text.grammar import Grammar, Rules
    from server.text.tokenizer import Tokenizer

_MAX_WINDOW = 256  # bytes in which a trigger occurs


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """Text in an answer from which a grammar applies.

    pattern     a regular expression; the grammar applies from its group `call`
    only_first  whether it matches the beginning of the answer only
    """

    pattern: bytes
    only_first: bool


@dataclass(frozen=True, kw_only=True)
class AnswerRules:
    """What an answer must match: a grammar, or any text and from a trigger on a grammar."""

    grammar: Grammar
    trigger: Trigger | None = None


class Constraints:
    """Makes the constraints of answers of a model with `vocab_size` ids; for any thread.

    `ends` are the ids that end an answer.
    """

    def __init__(self, tokenizer: Tokenizer, *, vocab_size: int, ends: Collection[int]) -> None:
        self.grammars = Grammars(tokenizer, vocab_size=vocab_size, ends=ends)
        self._tokenizer = tokenizer

    def constraint(self, rules: AnswerRules) -> AnswerConstraint:
        """The constraint of an empty answer; raises InvalidRequest."""
        return AnswerConstraint(rules, self.grammars.rules(rules.grammar), self._tokenizer)


class AnswerConstraint:
    """The state of one answer in its rules: the sampler's Constraint.

    Before the trigger every token is allowed. Text that begins like a call and cannot become one is
    free again.
    """

    def __init__(self, rules: AnswerRules, grammar: Rules, tokenizer: Tokenizer) -> None:
        self.rules = rules
        self._grammar = grammar
        self._tokenizer = tokenizer
        self._trigger = rules.trigger
        self._pattern = re.compile(rules.trigger.pattern) if rules.trigger else None
        self._recent: deque[tuple[int, bytes]] = deque()
        self._size = 0  # bytes of the recent tokens
        self._enforced = rules.trigger is None

    @property
    def finished(self) -> bool:
        """As Constraint.finished."""
        return self._enforced and self._grammar.finished

    def allowed(self) -> NDArray[np.bool_] | None:
        """As Constraint.allowed."""
        return self._grammar.allowed() if self._enforced else None

    def accept(self, token: int) -> None:
        """As Constraint.accept."""
        if self._enforced:
            self._grammar.accept(token)
        elif self._pattern and self._trigger:
            self._look(token, self._pattern, self._trigger)

    def _look(self, token: int, pattern: re.Pattern[bytes], trigger: Trigger) -> None:
        """Look for a trigger that ends in this token."""
        word = self._tokenizer.bytes_of(token)
        self._recent.append((token, word))
        self._size += len(word)
        text = b"".join(word for _, word in self._recent)
        begin = pattern.match(text) if trigger.only_first else pattern.search(text)
        if begin:
            self._enforced = self._grammar.feed(*self._from(begin.start("call")))
            self._recent.clear()
            self._size = 0
        if trigger.only_first and (begin or self._size > _MAX_WINDOW):
            self._trigger = None
        while self._size > _MAX_WINDOW:
            self._size -= len(self._recent.popleft()[1])

    def _from(self, start: int) -> tuple[bytes, Sequence[int]]:
        """The recent bytes from a position: the rest of one token, and the tokens after it."""
        tokens = list(self._recent)
        while tokens and start >= len(tokens[0][1]):
            start -= len(tokens.pop(0)[1])
        if not start:
            return b"", [token for token, _ in tokens]
        return tokens[0][1][start:], [token for token, _ in tokens[1:]]
