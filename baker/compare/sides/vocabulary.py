"""Text to token ids and back, as a side reads text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hearthd.bundle import TOKENIZER, LanguageManifest, read_manifest_of
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Vocabulary(Protocol):
    """Text to token ids, as a model reads it, and back."""

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""

    def tokenize(self, text: str) -> tuple[int, ...]:
        """The token ids of a text, starting with the beginning-of-sequence token, if any."""

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens by their names."""


class BundleVocabulary:
    """The tokenizer of a bundle."""

    def __init__(self, tokenizer: Tokenizer, manifest: LanguageManifest) -> None:
        self._tokenizer = tokenizer
        self._bos = () if tokenizer.bos is None else (tokenizer.bos,)
        self.vocab_size = manifest.vocab_size

    @staticmethod
    def of(bundle: Path) -> BundleVocabulary | None:
        """The vocabulary of a bundle, or None without a tokenizer; raises BundleError."""
        manifest = read_manifest_of(bundle, LanguageManifest)
        path = bundle / TOKENIZER
        if not path.is_file():
            return None
        tokenizer = Tokenizer.from_file(path, bos=manifest.special_tokens.bos)
        return BundleVocabulary(tokenizer, manifest)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """See Vocabulary."""
        # The name of a special token in a text stays text.
        return (*self._bos, *self._tokenizer.read(text, special=False))

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """See Vocabulary."""
        return self._tokenizer.decode(token_ids, special=True)


def tokens_text(vocabulary: Vocabulary | None, token_ids: Sequence[int]) -> str:
    """The text of tokens, or their ids if the vocabulary is unknown."""
    if vocabulary is not None and all(token >= 0 for token in token_ids):
        return vocabulary.detokenize(token_ids)
    return " ".join(f"#{token}" if token >= 0 else "(unknown)" for token in token_ids)


def ids_by_text(vocabulary: Vocabulary) -> dict[str, int]:
    """The token id of each text that is exactly one token; takes seconds for a large vocabulary.

    If several tokens have the same text, as an ASCII character and its byte token, the result is
    the token that the tokenizer uses, if any. Tokens that are part of a character are left out.
    """
    ids: dict[str, int] = {}
    ambiguous: set[str] = set()
    for token in range(vocabulary.vocab_size):
        text = vocabulary.detokenize([token])
        if text in ids:
            ambiguous.add(text)
        elif text and "\ufffd" not in text:
            ids[text] = token
    for text in ambiguous:
        *_, last = vocabulary.tokenize(text)
        if vocabulary.detokenize([last]) == text:
            ids[text] = last
        else:
            del ids[text]
    return ids
