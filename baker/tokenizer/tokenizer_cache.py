"""Tokenizers that were read on this machine, kept so that they are not converted again.

Converting Gemma's vocabulary takes 4 s. All quants and fine-tunes of a model have the same one.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.baker.digest_cache import DigestCache
from hearthd.baker.tokenizer.tokenizer_files import (
    FOLDER_FILES,
    SourceTokenizer,
    chat_template,
    read_tokenizer,
)
from hearthd.bundle import NotABundle, SpecialTokens, bundle_home
from hearthd.bundle.parsing.text_files import read_bytes

if TYPE_CHECKING:
    from hearthd.baker.weights.source import WeightSource

FOLDER = ".tokenizers"
# About a dozen of the largest ones.
_LIMIT_BYTES = 128 << 20
# The packages whose code decides what a tokenizer becomes.
_CODE = ("hearthd.baker.tokenizer", "hearthd.text")


@dataclass(frozen=True)
class TokenizerCache:
    """A folder of tokenizers by the digest of what they were read from."""

    folder: Path

    @classmethod
    def at_home(cls) -> TokenizerCache | None:
        """The one in $HEARTH_HOME; None if there is no home folder."""
        try:
            return cls(bundle_home.home() / FOLDER)
        except NotABundle:
            return None

    def read(self, source: WeightSource, *, vocab_size: int) -> SourceTokenizer:
        """As `read_tokenizer`; it is kept if it is not yet, and the folder can be written."""
        kept = DigestCache(
            folder=self.folder, suffix=".txt", record=SpecialTokens, limit_bytes=_LIMIT_BYTES
        )
        digest = source_digest(source, vocab_size)
        if (found := kept.find(digest)) is not None:
            return SourceTokenizer(
                text=found.data.decode(), special=found.record, template=chat_template(source)
            )
        tokenizer = read_tokenizer(source, vocab_size=vocab_size)
        kept.keep(digest, tokenizer.text.encode(), tokenizer.special)
        return tokenizer


def source_digest(source: WeightSource, vocab_size: int) -> str:
    """The sha256 of all that decides the tokenizer of weights, and of the code that reads it."""
    digest = hashlib.sha256(f"{vocab_size} {version('tokenizers')} {_code()}".encode())
    if source.folder is None:
        metadata = source.metadata()
        architecture = f"{metadata.get('general.architecture')}."
        described = {
            key: value
            for key, value in metadata.items()
            if key.startswith(("tokenizer.", "general.architecture", architecture))
        }
        digest.update(json.dumps(described, sort_keys=True, default=str).encode())
    else:
        for name in FOLDER_FILES:
            digest.update(f"{name}\0".encode())
            with suppress(OSError):
                digest.update(hashlib.sha256(read_bytes(source.folder / name)).digest())
    return digest.hexdigest()


@cache
def _code() -> str:
    digest = hashlib.sha256()
    for package in _CODE:
        for path in sorted(Path(str(files(package))).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
