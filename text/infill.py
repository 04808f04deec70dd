"""Prompts for the text between a prefix and a suffix (fill in the middle, FIM).

    [repo] name, then for each other file: [file] name, text, then [file] name
    [prefix] text before the gap [suffix] text after it [middle]

Words in brackets are special tokens, which every family of models names differently. The order is
llama-server's. Mistral's models have an order of their own, in mistral-common:

    [suffix] text after the gap [prefix] text before it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.text.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.text.tokenizer import Tokenizer

_PREFIX = (
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",
    "<\uff5cfim\u2581begin\uff5c>", "<PRE>", "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>",
)  # fmt: skip
_SUFFIX = (
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>",
    "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>",
)  # fmt: skip
_MIDDLE = (
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>",
    "\u2581<MID>", "<|code_middle|>", "<|middle|>",
)  # fmt: skip
_MISTRAL = ("[SUFFIX]", "[PREFIX]")
_REPO = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<repo_name>", "<reponame>")
_FILE = ("<|file_sep|>", "<file_sep>", "<|file_separator|>")
# As in llama-server.
_PROJECT = "myproject\n"
_FILE_NAME = "filename\n"
_SNIPPET = "\n\n--- snippet ---\n\n"


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """Another file of the project."""

    name: str
    text: str


def infill_prompt(
    tokenizer: Tokenizer, before: str, after: str, files: Sequence[SourceFile]
) -> tuple[int, ...]:
    """The token ids of a prompt whose answer goes between two texts.

    Raises NotSupported if the vocabulary lacks the special tokens, and TextTooLong.
    """
    prefix, suffix, middle = (_id(tokenizer, names) for names in (_PREFIX, _SUFFIX, _MIDDLE))
    if prefix is not None and suffix is not None and middle is not None:
        texts = (prefix, *_read(tokenizer, before), suffix, *_read(tokenizer, after))
        gap: tuple[int, ...] = (*texts, middle)
    else:
        gap = _mistral_gap(tokenizer, before, after)
    return tokenizer.with_bos((*_context(tokenizer, files), *gap))


def _mistral_gap(tokenizer: Tokenizer, before: str, after: str) -> tuple[int, ...]:
    """As in mistral-common, where only the text before the gap begins as a text of its own."""
    suffix, prefix = map(tokenizer.special_id, _MISTRAL)
    if suffix is None or prefix is None:
        raise NotSupported("the model's vocabulary has no tokens to fill in the middle")
    text_after = tokenizer.read(after, special=False, position="inside")
    return (suffix, *text_after, prefix, *tokenizer.read(before, special=False))


def _context(tokenizer: Tokenizer, files: Sequence[SourceFile]) -> list[int]:
    """The ids of the other files, and of the name of the file with the gap."""
    ids: list[int] = []
    if not files:
        return ids
    repo, separator = _id(tokenizer, _REPO), _id(tokenizer, _FILE)
    if repo is not None:
        ids += [repo, *_read(tokenizer, _PROJECT)]
    for file in files:
        if separator is None:
            ids += _read(tokenizer, f"{_SNIPPET}{file.text}")
        else:
            ids += [separator, *_read(tokenizer, f"{file.name}\n{file.text}")]
    if separator is not None:
        ids += [separator, *_read(tokenizer, _FILE_NAME)]
    return ids


def _read(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    return tokenizer.read(text, special=False, position="after special")


def _id(tokenizer: Tokenizer, names: Sequence[str]) -> int | None:
    """The id of the first name that is a special token, or None."""
    for name in names:
        ids = tokenizer.read(name)
        if len(ids) == 1 and tokenizer.is_silent(ids[0]):
            return ids[0]
    return None
