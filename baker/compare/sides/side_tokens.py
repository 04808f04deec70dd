"""Text to token ids and back, as a side reads it.

A bundle's vocabulary is its tokenizer.json, with the token that begins a text in front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import tokenizers

from models.bundle import TOKENIZER, LanguageManifest, read_manifest_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Vocabulary(Protocol):
    """Text to token ids, as a model reads it, and back."""

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""

    def tokenize(self, text: str) -> tuple[int, ...]:
        """The ids of a text, with the beginning-of-sequence token in front."""

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special tokens by their names."""


class BundleVocabulary:
    """A bundle's tokenizer."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, manifest: LanguageManifest) -> None:
        # A name of a special token in a text is text.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._bos = () if manifest.special_tokens.bos is None else (manifest.special_tokens.bos,)
        self.vocab_size = manifest.vocab_size

    @staticmethod
    def of(bundle: Path) -> BundleVocabulary | None:
        """The vocabulary of a bundle, if it has one; raises a BundleError if it is no bundle."""
        manifest = read_manifest_of(bundle, LanguageManifest)
        path = bundle / TOKENIZER
        if not path.is_file():
            return None
        return BundleVocabulary(tokenizers.Tokenizer.from_file(str(path)), manifest)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """See Vocabulary."""
        return (*self._bos, *self._tokenizer.encode(text, add_special_tokens=False).ids)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """See Vocabulary."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)


def spelled(vocabulary: Vocabulary | None, token_ids: Sequence[int]) -> str:
    """Tokens for people: their text, or their numbers where there is no vocabulary."""
    if vocabulary is not None and all(token >= 0 for token in token_ids):
        return vocabulary.detokenize(token_ids)
    return " ".join(f"#{token}" if token >= 0 else "(unknown)" for token in token_ids)


def ids_by_text(vocabulary: Vocabulary) -> dict[str, int]:
    """The token of each text that is exactly one token's; takes seconds for a large vocabulary.

    Of several tokens with one text, which a byte's own token makes of every ASCII character, it is
    the one that the tokenizer takes, if it takes one. Pieces of a character are left out.
    """
    found: dict[str, int] = {}
    twice: set[str] = set()
    for token in range(vocabulary.vocab_size):
        text = vocabulary.detokenize([token])
        if text in found:
            twice.add(text)
        elif text and "\ufffd" not in text:
            found[text] = token
    for text in twice:
        *_, last = vocabulary.tokenize(text)
        if vocabulary.detokenize([last]) == text:
            found[text] = last
        else:
            del found[text]
    return found
