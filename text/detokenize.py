"""Token ids to text, token by token; stop strings.

pieces of Detokenizer, joined              == decode of all the tokens
pieces of Detokenizer and StopFilter       == the same, cut before the first stop string
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.text.text_overlap import overlap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.text.tokenizer import Tokenizer


_GUARD = "\ud800"  # a surrogate, which no text of a tokenizer contains


def guarded(text: str) -> str:
    """A text in which nothing can be the name of a special token, such as `<|end|>`."""
    return text.replace("<", f"<{_GUARD}")


def unguarded(text: str) -> str:
    """The text that was guarded, or a part of it."""
    return text.replace(_GUARD, "")


class Detokenizer:
    """Turn one answer's tokens into pieces of text that are final.

    Exact for decoders that use only the bytes of a character: byte fallback (Gemma) and byte level
    (GPT-2). Byte fallback decodes a run of byte tokens as a whole, so a run is held until another
    token ends it. Byte level holds a character until its last byte has arrived.

    `shown` are the names of special tokens that appear in the text. With `guards`, the text of
    other tokens is `guarded`: where it spells such a name, it is not taken for the special token.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, shown: Sequence[str] = (), guards: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._shown = frozenset(shown)
        self._guards = guards
        self._held: list[int] = []
        self._length = 0  # characters that are final

    @property
    def position(self) -> int:
        """The number of complete characters so far, in which the next token begins."""
        held = b"".join(map(self._tokenizer.bytes_of, self._held))
        return self._length + len(held.decode(errors="ignore"))

    def push(self, token: int) -> str:
        """Add a token; return the text that is final now, which may be empty."""
        if self._tokenizer.is_silent(token):
            if self._shown and (name := self._tokenizer.name(token)) in self._shown:
                text = self.flush() + name
                self._length += len(name)
                return text
            return ""
        self._held.append(token)
        if self._tokenizer.is_byte(token):
            return ""
        text = self._tokenizer.decode(self._held)
        return "" if text.endswith("\N{REPLACEMENT CHARACTER}") else self._final(text)

    def flush(self) -> str:
        """The text of the held tokens; an incomplete character becomes U+FFFD."""
        return self._final(self._tokenizer.decode(self._held))

    def _final(self, text: str) -> str:
        """The text of the held tokens."""
        self._held.clear()
        self._length += len(text)
        return guarded(text) if self._guards else text


class StopFilter:
    """Pass text on until a stop string is complete, and remove the stop string.

    Of several stop strings the first that is complete applies, and of equal ones the longest. The
    division of the text into pieces makes no difference.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stop_string = ""  # once it is found

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found."""
        return bool(self.stop_string)

    def push(self, text: str) -> str:
        """Add text; return the text before any stop string that is final now."""
        text = self._held + text
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            end, start = min(ends)
            self.stop_string = text[start:end]
            self._held = ""
            return text[:start]
        keep = len(text) - overlap(text, self._stops)
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """The text that was held because it could have become a stop string."""
        text, self._held = self._held, ""
        return text
