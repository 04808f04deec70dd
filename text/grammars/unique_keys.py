"""Keep the keys of each object in a JSON text unique.

A grammar cannot do that where an object may have keys that the schema does not list. RFC 8259,
section 4, leaves the meaning of a repeated key open.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import llguidance
    from numpy.typing import NDArray

    from hearthd.text.words import Words

# The lexemes of a text: what can change its state, and what cannot.
_LEXEMES = re.compile(rb'["\\{}\[\],]|[^"\\{}\[\],]+')
# Where a grammar allows more tokens, a key can go on in a way that no other key of the object has.
_FEW = 100
_MAX_LOOKAHEAD = 500  # states in which another key is looked for


@dataclass(frozen=True)
class _State:
    """A position in a JSON text, or in a text with JSON values.

    open     for each value that is open its keys so far, or None for an array
    key      the key in progress, as written; None outside of keys
    string   whether a string is in progress
    escaped  whether the next byte of the string belongs to an escape
    before   whether the next string is a key
    """

    open: tuple[frozenset[bytes] | None, ...] = ()
    key: bytes | None = None
    string: bool = False
    escaped: bool = False
    before: bool = False

    @property
    def keys(self) -> frozenset[bytes]:
        """The keys of the innermost open value."""
        return (self.open and self.open[-1]) or frozenset()

    @property
    def at_key(self) -> bool:
        """Whether a key is in progress or must follow."""
        return self.before or self.key is not None

    @property
    def is_repeating(self) -> bool:
        """Whether a key must follow or go on, and nothing in it is new so far."""
        if not self.at_key or not self.keys:
            return False
        begun = self.key or b""
        return b"\\" not in begun and any(key.startswith(begun) for key in self.keys)

    def after(self, text: bytes) -> _State | None:
        """The position after more text; None if it completes a key that the object has."""
        state = self
        for lexeme in _LEXEMES.findall(text):
            next_state = state._within(lexeme) if state.string else state._between(lexeme)
            if next_state is None:
                return None
            state = next_state
        return state

    def _within(self, lexeme: bytes) -> _State | None:
        """The position after a lexeme inside a string."""
        if lexeme == b'"' and not self.escaped:
            return self._after_key(self.key) if self.key is not None else _State(self.open)
        escaped = lexeme == b"\\" and not self.escaped
        if self.key is not None:
            return replace(self, key=self.key + lexeme, escaped=escaped)
        return self if escaped == self.escaped else replace(self, escaped=escaped)

    def _after_key(self, key: bytes) -> _State | None:
        """The position after the end of a key."""
        if b"\\" in key:  # one key can be written in several ways
            text = json.loads(f'"{key.decode()}"', strict=False)
            key = json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")
        if key in self.keys:
            return None
        return _State((*self.open[:-1], self.keys | {key}))

    def _between(self, lexeme: bytes) -> _State:
        """The position after a lexeme outside of strings."""
        match lexeme:
            case b'"':
                return replace(self, key=b"" if self.before else None, string=True)
            case b"{":
                return _State((*self.open, frozenset()), before=True)
            case b"[":
                return _State((*self.open, None))
            case b"}" | b"]":
                return _State(self.open[:-1])
            case b",":
                return _State(self.open, before=bool(self.open) and self.open[-1] is not None)
        return self


class JsonTokens:
    """The tokens of a vocabulary that can complete a key, or require one.

    endings  ids of words with a quotation mark, by the text before it
    inside   ids of words with several, by each text between two of them
    unclear  ids of words with escapes and quotation marks, or with a text between them twice
    quoted   ids of words with quotation marks, int64
    commas   ids of words with a comma and no quotation mark, int64
    """

    def __init__(self, words: Words, *, ends: Collection[int]) -> None:
        self.words = words
        self.endings: defaultdict[bytes, list[int]] = defaultdict(list)
        self.inside: defaultdict[bytes, list[int]] = defaultdict(list)
        self.unclear: list[int] = []
        quoted, commas = array("q"), array("q")
        for id_, word in enumerate(words):
            before, *parts = word.split(b'"')
            if not (parts or b"," in word) or id_ in ends:
                continue
            (quoted if parts else commas).append(id_)
            texts = parts[:-1]
            if parts and (b"\\" in word or len(set(texts)) < len(texts)):
                self.unclear.append(id_)
            elif parts:
                self.endings[before].append(id_)
                for text in texts:
                    self.inside[text].append(id_)
        self.quoted, self.commas = np.array(quoted), np.array(commas)


class UniqueKeys:
    """Rejects tokens that repeat a key of an object, or after which only such keys are possible.

    `allowed` returns which tokens a grammar allows next, bool (V,).
    """

    def __init__(
        self, tokens: JsonTokens, allowed: Callable[[llguidance.LLMatcher], NDArray[np.bool_]]
    ) -> None:
        self._tokens = tokens
        self._allowed = allowed
        self._state = _State()
        self._extensible: dict[_State, bool] = {}  # whether a new key is possible there

    def accept(self, text: bytes) -> None:
        """Take the text of the next token."""
        self._state = self._state.after(text) or self._state
        if b"}" in text:  # the next object at this depth may have other keys
            self._extensible.clear()

    def restrict(self, allowed: NDArray[np.bool_], matcher: llguidance.LLMatcher) -> None:
        """Clear the ids in `allowed` that may not follow; `matcher` is the grammar's state."""
        state, tokens = self._state, self._tokens
        if not state.open:
            return
        few = state.at_key and bool(state.keys) and np.count_nonzero(allowed) <= _FEW
        if few:
            ids = np.flatnonzero(allowed)
        elif self._needs_a_look():
            ids = tokens.quoted
        else:
            ids = self._repeating()
        if not state.string:
            ids = np.concatenate([ids, tokens.commas])
        for id_ in map(int, ids[allowed[ids]]):
            after = state.after(tokens.words[id_])
            allowed[id_] = after is not None and (
                not after.is_repeating
                or (state.at_key and not few)
                or self._is_extensible(after, id_, matcher)
            )

    def _needs_a_look(self) -> bool:
        """Whether each word with a quotation mark may have to be cleared."""
        if self._state.key is not None:
            return b"\\" in self._state.key
        return bool(self._state.keys) and not self._extensible.get(self._next_key, False)

    @property
    def _next_key(self) -> _State:
        return _State(self._state.open, before=True)

    def _repeating(self) -> NDArray[np.int64]:
        """Ids of the words that may complete a key which an open object has."""
        state, tokens = self._state, self._tokens
        ids = list(tokens.unclear)
        for key in frozenset().union(*filter(None, state.open)):
            ids += tokens.inside.get(key, ())
        if state.key is not None:
            for key in state.keys:
                if key.startswith(state.key):
                    ids += tokens.endings.get(key[len(state.key) :], ())
        return np.array(ids, np.int64)

    def _is_extensible(self, after: _State, id_: int, matcher: llguidance.LLMatcher) -> bool:
        """Whether a key that the object does not have can follow a token."""
        if after not in self._extensible:
            self._extensible[after] = self._finds_a_key(after, id_, matcher)
        here = len(after.open) == len(self._state.open) and not self._state.at_key
        if here and self._extensible[after]:
            self._extensible[self._next_key] = True
        return self._extensible[after]

    def _finds_a_key(self, after: _State, id_: int, matcher: llguidance.LLMatcher) -> bool:
        """Follow all that the object's own keys begin with, until the grammar allows another."""
        pending, seen = deque([(matcher, id_, after)]), {after}
        for _ in range(_MAX_LOOKAHEAD):
            if not pending:
                return False
            previous, id_, state = pending.popleft()
            matcher = previous.deep_copy()
            matcher.consume_token(id_)
            for next_ in map(int, np.flatnonzero(self._allowed(matcher))):
                next_state = state.after(self._tokens.words[next_])
                if next_state is None or next_state in seen:
                    continue
                if not next_state.is_repeating:
                    return True
                seen.add(next_state)
                pending.append((matcher, next_, next_state))
        return True
