"""Text to token ids and back, by a bundle's tokenizer.json.

It knows the `tokenizers` library and which token begins a text. What a special token is called in
the text (`<start_of_turn>`) is read as that token, as the library's `encode` does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import tokenizers

from models.bundle import BundleError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


class BadTokenizer(BundleError):
    """The bundle's tokenizer.json cannot be read."""


class Tokenizer:
    """A tokenizer that puts `bos` in front of a text, where the model has one."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, *, bos: int | None) -> None:
        self._tokenizer = tokenizer
        self._bos = bos
        added = tokenizer.get_added_tokens_decoder()
        self._special = frozenset(id_ for id_, token in added.items() if token.special)

    @staticmethod
    def from_file(path: Path, *, bos: int | None) -> Tokenizer:
        """Read a tokenizer.json; raises BadTokenizer."""
        try:
            return Tokenizer(tokenizers.Tokenizer.from_file(str(path)), bos=bos)
        except Exception as error:  # the library raises nothing more special
            raise BadTokenizer(f"{path} is no tokenizer: {error}: bake the bundle again") from error

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text, with `bos` in front unless the text itself begins with it."""
        ids = tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
        if self._bos is None or ids[:1] == (self._bos,):
            return ids
        return (self._bos, *ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids. Special tokens and ids that the vocabulary lacks have none."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def name(self, token: int) -> str:
        """The text of one token by itself; of a special token its name."""
        return self._tokenizer.decode([token], skip_special_tokens=False)

    def is_silent(self, token: int) -> bool:
        """Whether the token has no text: `decode` skips it."""
        return token in self._special or self._tokenizer.id_to_token(token) is None

    def is_byte(self, token: int) -> bool:
        """Whether the token stands for one byte of a character (`<0xE2>`)."""
        return _BYTE_TOKEN.fullmatch(self._tokenizer.id_to_token(token) or "") is not None
