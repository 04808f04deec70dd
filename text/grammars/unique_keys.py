"""Keep the keys of each object unique, in an answer of JSON and in the values that a grammar marks.

A grammar cannot do that where an object may have keys that the schema does not list. RFC 8259,
section 4, leaves the meaning of a repeated key open.

The marks of text/value_marks.py tell where such a value may begin. From there on a copy of the
grammar's state follows the value alone, until the value ends or the text is not such a value.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np

from hearthd.text.grammars.key_positions import NOTATIONS, JsonPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import llguidance
    from numpy.typing import NDArray

    from hearthd.text.grammars.key_positions import KeyPosition
    from hearthd.text.words import Words

# What a word holds that can complete a key, or require one.
_SIGN = re.compile(b"[,%s]" % b"".join(notation.delimiter for notation in NOTATIONS))
_BRACKET = re.compile(rb"[{\[]")  # the first byte of a value that can have keys
# Where a grammar allows more tokens, a key can go on in a way that no other key of the object has.
_FEW = 100
_MAX_LOOKAHEAD = 500  # positions in which another key is looked for


class KeyTokens:
    """The tokens of a vocabulary that can complete a key of a notation, or require one.

    `signed` are the ids and words that hold a sign of a notation.

    endings  ids of words with the delimiter of keys, by the text before it
    inside   ids of words that may hold a whole key, by the key
    unclear  ids of words with escapes and delimiters, or that may hold a key twice
    closing  ids of words with delimiters, int64
    leaving  ids in `closing` that may end a string, int64
    commas   ids of words with a comma and no delimiter, int64
    """

    def __init__(
        self, notation: type[KeyPosition], signed: Sequence[tuple[int, bytes]], *, mark: int
    ) -> None:
        self.start = notation()
        self.mark = mark
        self.endings: defaultdict[bytes, list[int]] = defaultdict(list)
        self.inside: defaultdict[bytes, list[int]] = defaultdict(list)
        self.unclear: list[int] = []
        closing, leaving, commas = array("q"), array("q"), array("q")
        for id_, word in signed:
            before, delimiter, _ = word.partition(notation.delimiter)
            if not delimiter:
                if b"," in word:
                    commas.append(id_)
                continue
            closing.append(id_)
            if notation.can_end_string(word):
                leaving.append(id_)
            keys = notation.keys_in(word)
            if b"\\" in word or len(set(keys)) < len(keys):
                self.unclear.append(id_)
            else:
                self.endings[before].append(id_)
                for key in keys:
                    self.inside[key].append(id_)
        self.closing, self.leaving = np.array(closing), np.array(leaving)
        self.commas = np.array(commas)


class KeyVocabulary:
    """The words of a vocabulary, and which of them matter for keys.

    In `tokenizer` the ids after the words are the marks of NOTATIONS.
    """

    def __init__(
        self, tokenizer: llguidance.LLTokenizer, words: Words, *, ends: Collection[int]
    ) -> None:
        self.words = words
        self._tokenizer = tokenizer
        signed = [
            (id_, word) for id_, word in enumerate(words) if _SIGN.search(word) and id_ not in ends
        ]
        self.notations = tuple(
            KeyTokens(notation, signed, mark=mark)
            for mark, notation in enumerate(NOTATIONS, len(words))
        )

    def spelled(self, text: bytes) -> list[int]:
        """Tokens of a text, none of them special."""
        return list(self._tokenizer.tokenize_bytes(text)) if text else []


class UniqueKeys:
    """Rejects tokens that repeat a key of an object, or after which only such keys are possible.

    `allowed` returns which tokens a grammar allows next, bool (V,). `matcher` is the state of an
    empty answer in its grammar. With `json` the whole answer is JSON.
    """

    def __init__(
        self,
        vocabulary: KeyVocabulary,
        allowed: Callable[[llguidance.LLMatcher], NDArray[np.bool_]],
        matcher: llguidance.LLMatcher,
        *,
        json: bool,
    ) -> None:
        self._vocabulary = vocabulary
        self._allowed = allowed
        self._json = json
        self._values: list[_Value] = []
        if json:
            tokens = next(t for t in vocabulary.notations if isinstance(t.start, JsonPosition))
            self._values.append(_Value(vocabulary.words, tokens, allowed, matcher.deep_copy()))

    def accept(self, token: int, matcher: llguidance.LLMatcher) -> None:
        """Take the next token; `matcher` is the grammar's state before it."""
        word = self._vocabulary.words[token]
        self._values = [value for value in self._values if value.accept(word, [token])]
        if not self._json:  # the grammar of JSON has no marks
            self._values += self._begun(word, matcher)

    def restrict(self, allowed: NDArray[np.bool_]) -> None:
        """Clear the ids in `allowed` that may not follow."""
        for value in self._values:
            value.restrict(allowed)

    def _begun(self, word: bytes, matcher: llguidance.LLMatcher) -> Iterator[_Value]:
        """The values that may begin in a word."""
        vocabulary = self._vocabulary
        for bracket in _BRACKET.finditer(word):
            at = bracket.start()
            before = vocabulary.spelled(word[:at])
            marked = [
                tokens
                for tokens in vocabulary.notations
                if _allows(matcher, [*before, tokens.mark])
            ]
            if len(marked) != 1:  # none, or a wildcard of tokens
                continue
            (tokens,) = marked
            inside = matcher.deep_copy()
            inside.consume_tokens([*before, tokens.mark])
            value = _Value(vocabulary.words, tokens, self._allowed, inside)
            if value.accept(word[at:], vocabulary.spelled(word[at:])):
                yield value


class _Value:
    """A value in progress. `matcher` is the grammar's state if the text is this value."""

    def __init__(
        self,
        words: Words,
        tokens: KeyTokens,
        allowed: Callable[[llguidance.LLMatcher], NDArray[np.bool_]],
        matcher: llguidance.LLMatcher,
    ) -> None:
        self._words = words
        self._tokens = tokens
        self._allowed = allowed
        self._matcher = matcher
        self._position = tokens.start
        self._extensible: dict[KeyPosition, bool] = {}  # whether a new key is possible there

    def accept(self, text: bytes, tokens: list[int]) -> bool:
        """Take more text; return whether the value goes on."""
        position = self._position.after(text)
        if position is None or position.complete or not self._matcher.consume_tokens(tokens):
            return False
        self._position = position
        if b"}" in text:  # the next object at this depth may have other keys
            self._extensible.clear()
        return True

    def restrict(self, allowed: NDArray[np.bool_]) -> None:
        """Clear the ids in `allowed` that may not follow."""
        position, tokens = self._position, self._tokens
        if not position.open:
            return
        few = position.at_key and bool(position.keys) and np.count_nonzero(allowed) <= _FEW
        if few:
            ids = np.flatnonzero(allowed)
        elif self._needs_a_look():
            ids = tokens.leaving if position.string else tokens.closing
        else:
            ids = self._repeating()
        if not position.string:
            ids = np.concatenate([ids, tokens.commas])
        for id_ in map(int, ids[allowed[ids]]):
            after = position.after(self._words[id_])
            is_new = after is not None and (not after.is_repeating or (position.at_key and not few))
            if not is_new and _allows(self._matcher, [id_]):
                allowed[id_] = after is not None and self._is_extensible(after, id_)

    def _needs_a_look(self) -> bool:
        """Whether each word with a delimiter may have to be cleared."""
        if self._position.key is not None:
            return b"\\" in self._position.key
        return bool(self._position.keys) and not self._extensible.get(
            self._position.next_key, False
        )

    def _repeating(self) -> NDArray[np.int64]:
        """Ids of the words that may complete a key which an open object has."""
        position, tokens = self._position, self._tokens
        ids = list(tokens.unclear)
        for key in frozenset().union(*filter(None, position.open)):
            ids += tokens.inside.get(key, ())
        if position.key is not None:
            for key in position.keys:
                if key.startswith(position.key):
                    ids += tokens.endings.get(key[len(position.key) :], ())
        return np.array(ids, np.int64)

    def _is_extensible(self, after: KeyPosition, id_: int) -> bool:
        """Whether a key that the object does not have can follow a token."""
        if after not in self._extensible:
            self._extensible[after] = self._finds_a_key(after, id_)
        here = len(after.open) == len(self._position.open) and not self._position.at_key
        if here and self._extensible[after]:
            self._extensible[self._position.next_key] = True
        return self._extensible[after]

    def _finds_a_key(self, after: KeyPosition, id_: int) -> bool:
        """Follow all that the object's own keys begin with, until the grammar allows another."""
        pending, seen = deque([(self._matcher, id_, after)]), {after}
        for _ in range(_MAX_LOOKAHEAD):
            if not pending:
                return False
            previous, id_, position = pending.popleft()
            matcher = previous.deep_copy()
            matcher.consume_token(id_)
            for next_ in map(int, np.flatnonzero(self._allowed(matcher))):
                next_position = position.after(self._words[next_])
                if next_position is None or next_position in seen:
                    continue
                if not next_position.is_repeating:
                    return True
                seen.add(next_position)
                pending.append((matcher, next_, next_position))
        return True


def _allows(matcher: llguidance.LLMatcher, tokens: list[int]) -> bool:
    return matcher.validate_tokens(tokens) == len(tokens)
