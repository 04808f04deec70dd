"""Text to token ids and back, with a bundle's tokenizer.json and the `tokenizers` library.

The name of a special token in a text (`<start_of_turn>`) is read as that token, as in the library,
unless a parameter says otherwise.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import re
import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tokenizers import decoders, pre_tokenizers

from hearthd.bundle import CONTEXTS_PER_TEXT, TEXT_BYTES_PER_TOKEN, BundleError
from hearthd.bundle.parsing.text_files import read_bytes
from hearthd.runtime.system.free_memory import no_other_thread
from hearthd.text.errors import TextTooLong
from hearthd.text.space_prefix import after_special, inside
from hearthd.text.tokenizer_json import (
    MAX_IDS,
    RARE,
    InvalidTokenizer,
    build,
    for_answers,
    for_whole_texts,
    no_panic,
    parse,
)
from hearthd.text.words import Words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import tokenizers

_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


def _byte_level_alphabet() -> dict[str, int]:
    """The byte of each of GPT-2's printable characters.

    Printable bytes of Latin-1 are themselves; the others are U+0100 and up, in order.
    """
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    printable = {byte for byte in range(256) if chr(byte) in alphabet}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + index): byte for index, byte in enumerate(others)
    }


_BYTE_LEVEL = _byte_level_alphabet()


# A text of its own; the text after a special token; or a text that continues another.
Position = Literal["start", "after special", "inside"]


class BadTokenizer(BundleError):
    """The bundle's tokenizer.json cannot be read."""


@dataclass(frozen=True)
class SpecialName:
    """The name of a special token in a text: characters `start` to `end`, read as `token`."""

    start: int
    end: int
    token: int


class Tokenizer:
    """A tokenizer that puts `bos` in front of a text, if the model has one.

    The library takes memory for each byte and each token of a text while it works. So a text raises
    TextTooLong if it has more than TEXT_BYTES_PER_TOKEN bytes of UTF-8 for each token of the
    `context`, or if its tokens fill more than CONTEXTS_PER_TEXT contexts. A tokenizer without a
    context accepts any text.
    """

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, *, bos: int | None, context: int | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._context = context
        self.bos = bos
        added = tokenizer.get_added_tokens_decoder()
        self._special = frozenset(id_ for id_, token in added.items() if token.special)
        self.special_token_names = sorted(
            token.content for token in added.values() if token.special
        )
        unknown = self._special.intersection(tokenizer.encode(RARE, add_special_tokens=False).ids)
        self._unknown = {id_: added[id_].content for id_ in unknown}
        self.longest_special_name = max(map(len, self.special_token_names), default=0)
        self._at = {
            "start": tokenizer,
            "after special": after_special(tokenizer),
            "inside": inside(tokenizer),
        }
        self._byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)
        # Whether special tokens are read is a state of the library's object.
        self._lock = threading.Lock()

    @staticmethod
    def from_file(
        path: Path, *, bos: int | None, context: int | None = None, whole_texts: bool = False
    ) -> Tokenizer:
        """Read a tokenizer.json; raises BadTokenizer. `whole_texts` are not answers.

        Returns the tokenizer of an equal file while one is in use. So a reloaded model, and a
        second model with the same vocabulary, need no memory for it.
        """
        try:
            text = read_bytes(path)
            key = hashlib.sha256(text).digest(), bos, context, whole_texts
            if (known := _IN_USE.get(key)) is not None:
                return known
            with no_other_thread():
                adapted = for_whole_texts if whole_texts else for_answers
                # `build` frees the vocabulary of the file: nothing else may have a reference.
                library = build(adapted(parse(text)))
            tokenizer = Tokenizer(library, bos=bos, context=context)
            _IN_USE[key] = tokenizer
            return tokenizer
        except (OSError, InvalidTokenizer) as error:
            raise BadTokenizer(
                f"{path} is not a valid tokenizer: {error}; bake the bundle again"
            ) from error

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text, with `bos` in front unless the text begins with it."""
        return self.with_bos(self.read(text))

    def encode_whole(self, text: str) -> tuple[int, ...]:
        """As `encode`, with the special tokens that the tokenizer puts before and behind a text."""
        with self._encoding(text, special=True, add_special=True) as encoding:
            return self.with_bos(tuple(encoding.ids))

    def encode_mixed(self, items: Sequence[int | str]) -> tuple[int, ...]:
        """The ids of a prompt of ids and texts. Only a text at its start gets `bos` in front."""
        ids: list[int] = []
        for index, item in enumerate(items):
            if isinstance(item, int):
                ids.append(item)
            else:
                ids += self.read(item) if index else self.encode(item)
        return tuple(ids)

    def pair_ids(
        self, text: str, second: str | None = None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids of a text or a pair, with the special tokens that the tokenizer puts around them;
        and of each id, 1 if it belongs to the second text, otherwise 0.
        """
        with self._encoding(text, second, special=False, add_special=True) as encoding:
            return tuple(encoding.ids), tuple(encoding.type_ids)

    def with_bos(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """The ids with `bos` in front, unless they begin with it or the model has none."""
        if self.bos is None or ids[:1] == (self.bos,):
            return ids
        return (self.bos, *ids)

    def read(
        self, text: str, *, special: bool = True, position: Position = "start"
    ) -> tuple[int, ...]:
        """The ids of a text, without `bos`; without `special`, names in it are plain text.

        Some tokenizers put a space in front of a text, which does not belong `inside` one.
        """
        with self._encoding(text, special=special, position=position) as encoding:
            return tuple(encoding.ids)

    def special_names(self, text: str) -> list[SpecialName]:
        """The names that `read` reads as special tokens, in order."""
        with self._encoding(text, special=True) as encoding:
            return [
                SpecialName(start, end, id_)
                for id_, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
                if id_ in self._special
                and self._unknown.get(id_, text[start:end]) in text[start:end]
            ]

    def special_id(self, name: str) -> int | None:
        """The id of the special token with this name, or None."""
        id_ = self._tokenizer.token_to_id(name)
        return id_ if id_ in self._special else None

    def begins_special_name(self, text: str) -> bool:
        """Whether a special token's name is longer than this text and begins with it."""
        at = bisect.bisect_right(self.special_token_names, text)
        return at < len(self.special_token_names) and self.special_token_names[at].startswith(text)

    @contextmanager
    def _encoding(
        self,
        text: str,
        second: str | None = None,
        *,
        special: bool,
        add_special: bool = False,
        position: Position = "start",
    ) -> Iterator[tokenizers.Encoding]:
        """The library's result for one text at a time, because a result takes much memory."""
        tokenizer = self._at[position]
        with self._lock:
            self._tokenizer.encode_special_tokens = not special
            tokenizer.encode_special_tokens = not special
            for part in (text, second or ""):
                self._require_short(part)
            with no_panic():
                encoding = tokenizer.encode(text, second, add_special_tokens=add_special)
            yield encoding

    def require_size(self, size: int) -> None:
        """Raise TextTooLong for texts with too many bytes of UTF-8; see the class."""
        if self._context is not None and size > (limit := self._context * TEXT_BYTES_PER_TOKEN):
            raise TextTooLong(f"{size} bytes", limit=limit, context=self._context)

    def _require_short(self, text: str) -> None:
        """Raise TextTooLong for a text with too many bytes or tokens; see the class.

        The tokens of a long text are counted piece by piece. A word at the end of a piece may be
        cut, so the count is an estimate.
        """
        if self._context is None or len(text) <= self._context:
            return
        size = len(text) if text.isascii() else len(text.encode(errors="replace"))
        self.require_size(size)
        max_tokens = self._context * CONTEXTS_PER_TEXT
        if size <= max_tokens:  # a token has at least one byte
            return
        count = 0
        for start in range(0, len(text), self._context):
            piece = text[start : start + self._context]
            count += len(self._tokenizer.encode(piece, add_special_tokens=False))
            if count > max_tokens:
                raise TextTooLong(
                    f"at least {count} tokens", limit=max_tokens, context=self._context
                )

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of the ids; with `special`, with the names of special tokens.

        Ids outside the vocabulary have no text.
        """
        with no_panic():
            return self._tokenizer.decode(list(ids), skip_special_tokens=not special)

    def name(self, token: int) -> str:
        """The text of one token alone; the name of a special token."""
        return self._tokenizer.decode([token], skip_special_tokens=False)

    def bytes_of(self, token: int) -> bytes:
        """The UTF-8 bytes that one token adds to a text; the name of a special token."""
        piece = self._tokenizer.id_to_token(token)
        if piece is not None and self.is_byte(token):
            return bytes([int(piece[3:5], 16)])
        if piece is not None and self._byte_level and all(c in _BYTE_LEVEL for c in piece):
            return bytes(_BYTE_LEVEL[c] for c in piece)
        return self.name(token).encode()

    @functools.cached_property
    def words(self) -> Words:
        """`bytes_of` of every id, b"" for gaps in the vocabulary; takes a second, once."""
        return Words(self._all_words())

    def _all_words(self) -> Iterator[bytes]:
        remaining = self._tokenizer.get_vocab_size()
        for id_ in range(MAX_IDS):
            if not remaining:
                return
            known = self._tokenizer.id_to_token(id_) is not None
            remaining -= known
            yield self.bytes_of(id_) if known else b""

    def is_silent(self, token: int) -> bool:
        """Whether the token has no text: `decode` skips it."""
        return token in self._special or self._tokenizer.id_to_token(token) is None

    def is_byte(self, token: int) -> bool:
        """Whether the token stands for one byte of a character (`<0xE2>`)."""
        if self._byte_level:
            return False
        return _BYTE_TOKEN.fullmatch(self._tokenizer.id_to_token(token) or "") is not None


# By the SHA-256 of the file, `bos`, the context and whether texts are whole.
_IN_USE: weakref.WeakValueDictionary[tuple[bytes, int | None, int | None, bool], Tokenizer] = (
    weakref.WeakValueDictionary()
)
