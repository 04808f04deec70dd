"""The constraint of one answer: of its reasoning, and of the text or calls after it.

AnswerRules describe it and can be sent to another process; Constraints makes its state.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from hearthd.sampling.constraint import Constraint, ConstraintFailed
from hearthd.text.grammars.grammar import Grammars, Rules

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from hearthd.text.grammars.grammar import Grammar
    from hearthd.text.reasoning import Reasoning
    from hearthd.text.tokenizer import Tokenizer

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
    """The rules for an answer after its reasoning.

    forced     tokens that the answer begins with: a prompt whose log-probabilities are wanted
    grammar    None allows any text
    trigger    the text from which the grammar applies; None for the beginning
    reasoning  the reasoning before the answer, which may be anything within its budget
    """

    forced: tuple[int, ...] = ()
    grammar: Grammar | None = None
    trigger: Trigger | None = None
    reasoning: Reasoning | None = None


class Constraints:
    """Makes the constraints of answers of a model with `vocab_size` ids; for any thread.

    `ends` are the ids that end an answer.
    """

    def __init__(self, tokenizer: Tokenizer, *, vocab_size: int, ends: Collection[int]) -> None:
        self.grammars = Grammars(tokenizer, vocab_size=vocab_size, ends=ends)
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    def constraint(self, rules: AnswerRules) -> AnswerConstraint:
        """The constraint of an empty answer; raises InvalidRequest."""
        answer: Constraint = _FREE
        if rules.grammar and rules.trigger:
            answer = _FromTrigger(
                self.grammars.rules(rules.grammar), rules.trigger, self._tokenizer
            )
        elif rules.grammar:
            answer = self.grammars.rules(rules.grammar)
        reasoning = None
        if rules.reasoning:
            reasoning = _ReasoningPart(rules.reasoning, self._tokenizer, self._vocab_size)
            if isinstance(answer, Rules) and not reasoning.can_begin:
                reasoning = None
                if rules.reasoning.opening and rules.reasoning.budget:
                    answer = _LimitedThought(
                        answer, rules.reasoning, self._tokenizer, self._vocab_size
                    )
        return AnswerConstraint(rules, reasoning, answer, self._vocab_size)


class AnswerConstraint(Constraint):
    """The state of one answer in its rules: the sampler's Constraint."""

    def __init__(
        self,
        rules: AnswerRules,
        reasoning: _ReasoningPart | None,
        answer: Constraint,
        vocab_size: int,
    ) -> None:
        self.rules = rules
        self._forced = deque(rules.forced)
        self._vocab_size = vocab_size
        self._reasoning = reasoning
        self._answer = answer

    @property
    @override
    def finished(self) -> bool:
        inside = self._reasoning is not None and self._reasoning.inside
        return not inside and not self._forced and self._answer.finished

    @override
    def allowed(self) -> NDArray[np.bool_] | None:
        if self._forced:
            return _only(self._forced[0], self._vocab_size)
        if self._reasoning is None:
            return self._answer.allowed()
        if self._reasoning.inside:
            return self._reasoning.allowed()
        return self._reasoning.around(self._answer.allowed())

    @override
    def accept(self, token: int) -> None:
        if self._forced:
            self._forced.popleft()
            return
        if self._reasoning is None:
            self._answer.accept(token)
            return
        began, rest = self._reasoning.accept(token)
        if not began:
            self._answer.accept(token)
        elif rest.strip() and isinstance(self._answer, Rules) and not self._answer.feed(rest, ()):
            raise ConstraintFailed("grammar: the reasoning ends in the middle of a token")
        if self._reasoning.ended:
            self._reasoning = None


class _Free(Constraint):
    """Allows every token."""

    finished = False

    @override
    def allowed(self) -> None: ...

    @override
    def accept(self, token: int) -> None: ...


_FREE = _Free()


class _ReasoningPart:
    """The reasoning at the beginning of an answer, whose end is forced when its budget is spent.

    If the prompt has not begun it, the start tag begins it. Where a grammar applies to the answer,
    only a tag of one token can do that.
    """

    def __init__(self, reasoning: Reasoning, tokenizer: Tokenizer, vocab_size: int) -> None:
        tags = reasoning.tags
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._start, self._end = tags.start.encode(), tags.end.encode()
        self._starts = _single_tokens(tokenizer, tags.start)
        # A line break between the reasoning and the answer is part of neither.
        self._breaks = _single_tokens(tokenizer, "\n", "\n\n")
        self._after = False  # the reasoning has just ended
        self.can_begin = reasoning.begun or bool(self._starts)
        self._closing = tokenizer.read(tags.closing, position="inside")
        self._remaining = reasoning.budget
        self._text = b""
        self._forced: tuple[int, ...] = ()
        self.inside = reasoning.begun
        self.ended = not reasoning.begun and not reasoning.possible
        if self.inside and self._remaining == 0:
            self._forced = self._closing

    def allowed(self) -> NDArray[np.bool_] | None:
        """The tokens that may come next inside the reasoning; None for all."""
        return _only(self._forced[0], self._vocab_size) if self._forced else None

    def around(self, allowed: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """The tokens that an answer may begin with, and the start tag or a line break after it."""
        more = self._breaks if self._after else self._starts
        if allowed is None or not more or (self._text and not self._after):
            return allowed
        allowed = allowed.copy()
        allowed[list(more)] = True
        return allowed

    def accept(self, token: int) -> tuple[bool, bytes]:
        """Take a token; return whether it is reasoning, and the bytes after it that are not."""
        word = self._tokenizer.bytes_of(token)
        if self._after:
            self.ended = True
            return token in self._breaks, b""
        if not self.inside:
            return self._look_for_start(token, word), b""
        if self._forced:
            self._forced = self._forced[1:]
            self.ended = not self._forced
            self.inside = not self.ended
            return True, b""
        self._text += word
        _, end, rest = self._text.partition(self._end)
        if end:
            self.inside, self._after, self.ended = False, not rest, bool(rest)
            return True, rest
        self._text = self._text[-len(self._end) :]
        self._spend()
        return True, b""

    def _look_for_start(self, token: int, word: bytes) -> bool:
        """Whether the token begins the reasoning, alone or with those before it."""
        self._text += word
        text = self._text.lstrip()
        if token in self._starts or text.startswith(self._start):
            self.inside, self._text = True, text[len(self._start) :]
            self._spend(0)
            return token in self._starts
        self.ended = not self._start.startswith(text)
        return False

    def _spend(self, tokens: int = 1) -> None:
        if self._remaining is not None:
            self._remaining -= tokens
            if self._remaining <= 0:
                self._forced = self._closing


class _LimitedThought(Constraint):
    """A grammar that may begin with a message of reasoning, which ends when its budget is spent.

    The grammar demands the opening of the next message after it, and then a call or text.
    """

    def __init__(
        self, grammar: Rules, reasoning: Reasoning, tokenizer: Tokenizer, vocab_size: int
    ) -> None:
        self._grammar = grammar
        self._tokenizer = tokenizer
        self._start = reasoning.tags.start.encode()
        self._text = b""  # the beginning of the answer, until it is or cannot be the start
        self._end, *_ = tokenizer.read(reasoning.tags.end, position="inside")
        self._only_end = _only(self._end, vocab_size)
        self._remaining = reasoning.budget or 0
        self._inside = False
        self._over = False

    @property
    @override
    def finished(self) -> bool:
        return self._grammar.finished

    @override
    def allowed(self) -> NDArray[np.bool_]:
        allowed = self._grammar.allowed()
        # In the middle of a character, the grammar does not allow the end.
        spent = self._inside and self._remaining <= 0 and allowed[self._end]
        return self._only_end if spent else allowed

    @override
    def accept(self, token: int) -> None:
        self._grammar.accept(token)
        if self._over:
            return
        if self._inside:
            self._remaining -= 1
            self._over = token == self._end
            self._inside = not self._over
            return
        self._text += self._tokenizer.bytes_of(token)
        self._inside = self._text == self._start
        self._over = not self._start.startswith(self._text)


def _only(token: int, vocab_size: int) -> NDArray[np.bool_]:
    allowed = np.zeros(vocab_size, np.bool_)
    allowed[token] = True
    return allowed


def _single_tokens(tokenizer: Tokenizer, *texts: str) -> frozenset[int]:
    """The tokens of the texts that are one token each."""
    encoded = (tokenizer.read(text, position="inside") for text in texts)
    return frozenset(ids[0] for ids in encoded if len(ids) == 1)


class _FromTrigger(Constraint):
    """Allows every token until a trigger, and from there on a grammar's tokens.

    Text that matches the trigger and not the grammar is free again.
    """

    def __init__(self, grammar: Rules, trigger: Trigger, tokenizer: Tokenizer) -> None:
        self._grammar = grammar
        self._tokenizer = tokenizer
        self._only_first = trigger.only_first
        self._pattern = re.compile(trigger.pattern)
        self._recent: deque[tuple[int, bytes]] = deque()
        self._size = 0  # bytes of the recent tokens
        self._possible = True  # whether the trigger can still occur
        self._enforced = False

    @property
    @override
    def finished(self) -> bool:
        return self._enforced and self._grammar.finished

    @override
    def allowed(self) -> NDArray[np.bool_] | None:
        return self._grammar.allowed() if self._enforced else None

    @override
    def accept(self, token: int) -> None:
        if self._enforced:
            self._grammar.accept(token)
        elif self._possible:
            self._look(token, self._tokenizer.bytes_of(token))

    def _look(self, token: int, word: bytes) -> None:
        """Look for a trigger that ends in this token."""
        self._recent.append((token, word))
        self._size += len(word)
        text = b"".join(word for _, word in self._recent)
        begin = self._pattern.match(text) if self._only_first else self._pattern.search(text)
        if begin:
            self._enforced = self._grammar.feed(*self._from(begin.start("call")))
            self._recent.clear()
            self._size = 0
        if self._only_first and (begin or self._size > _MAX_WINDOW):
            self._possible = False
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
