"""Positions in values whose objects have keys: in JSON, and in the notation of Gemma's calls."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from typing_extensions import override

from hearthd.text.value_marks import (
    FUNCTION_GEMMA_DELIMITER,
    FUNCTION_GEMMA_VALUE,
    GEMMA_4_DELIMITER,
    GEMMA_4_VALUE,
    JSON_VALUE,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class KeyPosition(ABC):
    """A position in a value.

    mark       the mark of such values in a grammar
    delimiter  the byte that ends a key

    open       for each object or array that is open its keys so far, or None for an array
    key        the key in progress, as written; None outside of keys
    before     whether a key must follow
    string     whether a string is in progress
    complete   whether the value was an object or array and is complete
    """

    mark: ClassVar[str]
    delimiter: ClassVar[bytes]
    _lexemes: ClassVar[re.Pattern[bytes]]  # what can change a position, and what cannot

    open: tuple[frozenset[bytes] | None, ...] = ()
    key: bytes | None = None
    before: bool = False
    string: bool = False
    complete: bool = False

    @staticmethod
    @abstractmethod
    def keys_in(word: bytes) -> Sequence[bytes]:
        """The keys that a word may hold from beginning to end."""

    @classmethod
    @abstractmethod
    def can_end_string(cls, word: bytes) -> bool:
        """Whether a word that holds a delimiter may end a string."""

    @property
    def keys(self) -> frozenset[bytes]:
        """The keys of the innermost object; empty in an array."""
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

    @property
    def next_key(self) -> Self:
        """The position before another key of the innermost object."""
        return self._moved(self.open, to_key=True)

    def after(self, text: bytes) -> Self | None:
        """The position after more text; None if it completes a key that the object has."""
        position = self
        for lexeme in self._lexemes.findall(text):
            if position.complete:
                break
            next_position = (
                position._within(lexeme) if position.string else position._between(lexeme)
            )
            if next_position is None:
                return None
            position = next_position
        return position

    @abstractmethod
    def _within(self, lexeme: bytes) -> Self | None:
        """The position after a lexeme inside a string."""

    def _between(self, lexeme: bytes) -> Self | None:
        """The position after a lexeme outside of strings."""
        match lexeme:
            case b"{":
                return self._moved((*self.open, frozenset()), to_key=True)
            case b"[":
                return self._moved((*self.open, None))
            case b"}" | b"]":
                return replace(self._moved(self.open[:-1]), complete=len(self.open) <= 1)
            case b",":
                in_object = bool(self.open) and self.open[-1] is not None
                return self._moved(self.open, to_key=in_object)
        return self

    def _moved(self, open_: tuple[frozenset[bytes] | None, ...], *, to_key: bool = False) -> Self:
        """A position outside of strings."""
        return type(self)(open_, before=to_key)

    def _after_key(self, key: bytes) -> Self | None:
        """The position after the end of a key; None if the object has it."""
        if key in self.keys:
            return None
        return self._moved((*self.open[:-1], self.keys | {key}))


@dataclass(frozen=True)
class JsonPosition(KeyPosition):
    """A position in a JSON value: a key is a string.

    escaped  whether the next byte of the string belongs to an escape
    """

    mark = JSON_VALUE
    delimiter = b'"'
    _lexemes = re.compile(rb'["\\{}\[\],]|[^"\\{}\[\],]+')

    escaped: bool = False

    @staticmethod
    @override
    def keys_in(word: bytes) -> Sequence[bytes]:
        return word.split(b'"')[1:-1]

    @classmethod
    @override
    def can_end_string(cls, word: bytes) -> bool:
        return True

    @override
    def _within(self, lexeme: bytes) -> Self | None:
        if lexeme == b'"' and not self.escaped:
            return self._after_key(self.key) if self.key is not None else self._moved(self.open)
        escaped = lexeme == b"\\" and not self.escaped
        if self.key is not None:
            return replace(self, key=self.key + lexeme, escaped=escaped)
        return self if escaped == self.escaped else replace(self, escaped=escaped)

    @override
    def _between(self, lexeme: bytes) -> Self | None:
        if lexeme == b'"':
            return replace(self, key=b"" if self.before else None, before=False, string=True)
        return super()._between(lexeme)

    @override
    def _after_key(self, key: bytes) -> Self | None:
        if b"\\" in key:  # one key can be written in several ways
            text = json.loads(f'"{key.decode()}"', strict=False)
            key = json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")
        return super()._after_key(key)


def _gemma_lexemes(string_delimiter: bytes) -> re.Pattern[bytes]:
    return re.compile(re.escape(string_delimiter) + rb"|[{}\[\],:]|[^{}\[\],:<]+|<")


@dataclass(frozen=True)
class FunctionGemmaPosition(KeyPosition):
    """A position in a value of FunctionGemma: a key is the text before a colon.

    The delimiter of strings is a token.
    """

    mark = FUNCTION_GEMMA_VALUE
    delimiter = b":"
    string_delimiter: ClassVar[bytes] = FUNCTION_GEMMA_DELIMITER.encode()
    _lexemes = _gemma_lexemes(string_delimiter)
    _keys: ClassVar[re.Pattern[bytes]] = re.compile(rb"[{,]([^{}\[\],:<]+)(?=:)")

    @staticmethod
    @override
    def keys_in(word: bytes) -> Sequence[bytes]:
        return FunctionGemmaPosition._keys.findall(word)

    @classmethod
    @override
    def can_end_string(cls, word: bytes) -> bool:
        return cls.string_delimiter in word

    @override
    def _within(self, lexeme: bytes) -> Self | None:
        return replace(self, string=False) if lexeme == self.string_delimiter else self

    @override
    def _between(self, lexeme: bytes) -> Self | None:
        if lexeme == self.string_delimiter:
            return replace(self, string=True)
        if self.key is not None and lexeme == b":":
            return self._after_key(self.key)
        if self.key is not None and lexeme not in (b"{", b"}", b"[", b"]", b","):
            return replace(self, key=self.key + lexeme)
        return super()._between(lexeme)

    @override
    def _moved(self, open_: tuple[frozenset[bytes] | None, ...], *, to_key: bool = False) -> Self:
        return type(self)(open_, key=b"" if to_key else None)


@dataclass(frozen=True)
class Gemma4Position(FunctionGemmaPosition):
    """A position in a value of Gemma 4, whose strings are between other tokens."""

    mark = GEMMA_4_VALUE
    string_delimiter = GEMMA_4_DELIMITER.encode()
    _lexemes = _gemma_lexemes(string_delimiter)


NOTATIONS: tuple[type[KeyPosition], ...] = (JsonPosition, FunctionGemmaPosition, Gemma4Position)
