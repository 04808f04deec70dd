"""Token ids to text as they come, and stop strings.

    pieces of Detokenizer, joined              == decode of all the tokens
    pieces of Detokenizer and StopFilter       == the same, cut before the first stop string

It knows a tokenizer and strings. It knows no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns one answer's tokens into pieces of text that are never taken back.

    Exact for decoders that look at nothing but a character's own bytes: byte fallback (Gemma) and
    byte level (GPT-2). In the first, a run of byte tokens is decoded as a whole or not at all, so a
    run is held until a token of another kind ends it; in the second, a character is held until its
    last byte has come.

    `shown` are the names of special tokens that are to be seen in the text.
    """

    def __init__(self, tokenizer: Tokenizer, *, shown: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._shown = frozenset(shown)
        self._held: list[int] = []

    def push(self, token: int) -> str:
        """The text that is certain with one more token; may be empty."""
        if self._tokenizer.is_silent(token):
            if self._shown and (name := self._tokenizer.name(token)) in self._shown:
                return self.flush() + name
            return ""
        self._held.append(token)
        if self._tokenizer.is_byte(token):
            return ""
        text = self._tokenizer.decode(self._held)
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        self._held.clear()
        return text

    def flush(self) -> str:
        """The text of what is held; a character that was never completed is replaced."""
        text = self._tokenizer.decode(self._held)
        self._held.clear()
        return text


class StopFilter:
    """Passes text on until one of the stop strings is complete; no part of that one passes.

    Of several stop strings the one that is complete first counts, and of those the longest:
    how the text was cut into pieces makes no difference.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that is certain with one more piece, which comes before any stop string."""
        text = self._held + text
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.stopped = True
            self._held = ""
            return text[: min(ends)[1]]
        keep = len(text) - self._beginning(text)
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """What was held because it could have become a stop string."""
        text, self._held = self._held, ""
        return text

    def _beginning(self, text: str) -> int:
        """The length of the longest end of `text` that is the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
