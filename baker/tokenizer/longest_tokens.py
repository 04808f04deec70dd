"""RWKV's vocabulary: bytes are read as the longest token that they begin with.

The `tokenizers` library has no such model. So a pattern, which is the tree of all tokens, splits a
text into tokens.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel

from hearthd.baker.tokenizer.vocabulary_fields import (
    CONTROL,
    NORMAL,
    UNUSED,
    added_tokens,
    byte_characters,
    read_vocabulary,
)
from hearthd.baker.weights.source import TokenizerError, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# Twice the longest published token. The pattern is nested as deep as the longest token.
_MAX_BYTES = 256
_ESCAPED = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_CONTROLS = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}
_LINE_END = "\n\n"  # ends a turn, as in llama.cpp


def longest_tokens(metadata: Mapping[str, object]) -> Tokenizer:
    """The tokenizer of a GGUF file of the type `rwkv`; raises TokenizerError.

    A token is written as Python writes bytes. A control token is read by its name.
    """
    names, types = read_vocabulary(metadata)
    special = [type_ == CONTROL for type_ in types]
    ids = {
        name if is_special else byte_characters(_unescaped(name)): id_
        for id_, (name, is_special) in enumerate(zip(names, special, strict=True))
        if types[id_] != UNUSED
    }
    if len(ids) != len(types) - types.count(UNUSED):
        raise TokenizerError("tokenizer.ggml.tokens has the bytes of a token twice")
    known = [token for token, id_ in ids.items() if not special[id_]]
    missing = [byte for byte in range(256) if byte_characters(bytes([byte])) not in ids]
    if missing:
        raise TokenizerError(f"tokenizer.ggml.tokens has no token for the byte {missing[0]}")
    tokenizer = Tokenizer(WordLevel(ids))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            pre_tokenizers.Split(Regex(_pattern(known)), "isolated"),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(added_tokens(names, types))
    return tokenizer


def read_rwkv_vocabulary(path: Path, first: str) -> dict[str, object]:
    """The metadata of a GGUF file with the vocabulary of a text file; token 0 is `first`.

    A line has an id, a Python literal of a text or of bytes, and their number. Raises
    TokenizerError, and OSError.
    """
    tokens = [first]
    for line in read_text(path).split("\n"):
        if not line:
            continue
        number, _, rest = line.partition(" ")
        literal, _, size = rest.rpartition(" ")
        try:
            value = ast.literal_eval(literal)
            token = value.encode() if isinstance(value, str) else bytes(value)
            expected = int(number), int(size)
        except (SyntaxError, TypeError, ValueError) as error:
            raise TokenizerError(f"{path}: {line!r:.80} is not an id, a token and its size") from (
                error
            )
        if expected != (len(tokens), len(token)):
            raise TokenizerError(
                f"{path}: {line!r:.80}: expected token {len(tokens)} of {len(token)} bytes"
            )
        tokens.append(repr(token)[2:-1])
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "rwkv",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL] + [NORMAL] * (len(tokens) - 1),
    }
    return metadata


def turn_end(ids: Mapping[str, int]) -> list[int]:
    """The token that ends a turn in a vocabulary of RWKV, if it has one."""
    name = byte_characters(_LINE_END.encode())
    return [ids[name]] if name in ids else []


def _unescaped(name: str) -> bytes:
    """The bytes of a token."""

    def byte(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if len(code) == 3:
            return bytes([int(code[1:], 16)])
        return _CONTROLS.get(code, code)

    return _ESCAPED.sub(byte, name.encode())


def _pattern(tokens: Iterable[str]) -> str:
    """A pattern that matches the longest of some tokens that a text begins with."""
    tree: dict[str, dict[str, object]] = {}
    for token in tokens:
        if not 0 < len(token) <= _MAX_BYTES:
            raise TokenizerError(
                f"tokenizer.ggml.tokens has a token of {len(token)} bytes, expected 1 to "
                f"{_MAX_BYTES}"
            )
        node = tree
        for character in token:
            node = node.setdefault(character, {})  # type: ignore[assignment]
        node[""] = {}
    return _alternatives(tree)


def _alternatives(tree: Mapping[str, object]) -> str:
    """The pattern of a tree of characters; an empty one marks the end of a token."""
    branches = [
        re.escape(character) + _alternatives(below)  # type: ignore[arg-type]
        for character, below in tree.items()
        if character
    ]
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){'?' if '' in tree else ''}"
