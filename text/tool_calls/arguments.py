"""Read the arguments of a tool call while their text arrives, each character once."""

from __future__ import annotations

import json
import math
import re
import sys
from abc import ABC, abstractmethod

from typing_extensions import override

# The characters of a JSON string, with complete escapes. A surrogate needs its other half.
_CHARACTERS = re.compile(
    r'(?:[^"\\]+|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
_LONE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_LONGEST_ESCAPE = 12  # characters of two halves of a surrogate pair
_WORD = re.compile(r'[^\s{}\[\],:"]+')  # a number, true, false or null
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_MAX_DIGITS = 300  # of a number; longer ones are beyond the range of doubles, or rounded


class JsonString:
    """Reads the rest of a JSON string, whose first quote has been read.

    `ended` says whether the string is complete; `rest` is then the text after its last quote.
    """

    def __init__(self) -> None:
        self.ended = False
        self.rest = ""

    def push(self, text: str) -> str:
        """Add text; return the characters that are final now, with their escapes."""
        held = self.rest + text
        written = ""
        while True:
            characters = _CHARACTERS.match(held)
            assert characters is not None
            written += characters[0]
            held = held[characters.end() :]
            self.ended = held.startswith('"')
            if self.ended or not held or (len(held) < _LONGEST_ESCAPE and '"' not in held):
                self.rest = held[self.ended :]
                return written
            # Half a surrogate pair, which UTF-8 cannot hold, or no escape of JSON.
            lone = _LONE.match(held)
            written += "\\ufffd" if lone else "\\\\"
            held = held[lone.end() if lone else 1 :]


def decoded(characters: str) -> str:
    """The text of characters that JsonString returned."""
    text: str = json.loads(f'"{characters}"', strict=False)
    return text


class ArgumentReader(ABC):
    """Reads the arguments of a call as JSON.

    `ended` says whether they are complete; `rest` is then the text after them.
    """

    def __init__(self) -> None:
        self.ended = False
        self.rest = ""
        self._depth = 0

    def push(self, text: str) -> str:
        """Add text; return the JSON that is final now."""
        text, position = self.rest + text, 0
        written = []
        while position < len(text) and not self.ended:
            found = self._token(text, position)
            if found is None:
                break
            token, position = found
            written.append(token)
        self.rest = text[position:]
        return "".join(written)

    @abstractmethod
    def _token(self, text: str, start: int) -> tuple[str, int] | None:
        """The token at a position as JSON, and its end; None if it is incomplete."""

    def _sign(self, character: str) -> str:
        """A character between values, as json.dumps writes it; the last bracket is the end."""
        self._depth += (character in "{[") - (character in "}]")
        self.ended = character in "}]" and self._depth <= 0
        return f"{character} " if character in ",:" else character.strip()


class JsonArguments(ArgumentReader):
    """Arguments in JSON, which are passed on with the white space of json.dumps.

    What some clients cannot read is replaced: lone surrogates, and numbers that are too large.
    """

    def __init__(self) -> None:
        super().__init__()
        self._string: JsonString | None = None

    @override
    def _token(self, text: str, start: int) -> tuple[str, int] | None:
        if self._string:
            written = self._string.push(text[start:])
            if not self._string.ended:
                return written, len(text)
            end = len(text) - len(self._string.rest)
            self._string = None
            return f'{written}"', end
        word = _WORD.match(text, start)
        if word:
            return None if word.end() == len(text) else (finite(word[0]), word.end())
        if text[start] == '"':
            self._string = JsonString()
            return '"', start + 1
        return self._sign(text[start]), start + 1


def finite(word: str) -> str:
    """A number that doubles can hold: JSON's can be larger. Other words are unchanged."""
    if not _NUMBER.fullmatch(word):
        return word
    number = float(word)
    if math.isfinite(number) and len(word) <= _MAX_DIGITS:
        return word
    return repr(min(max(number, -sys.float_info.max), sys.float_info.max))
