"""A vocabulary of SentencePiece, tokenizer.model, as the metadata of a GGUF file.

The file is a protocol buffer: sentencepiece_model.proto of google/sentencepiece. GGUF files number
the types of tokens in the same way.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from hearthd.baker.tokenizer.vocabulary_fields import CHARACTER_MAP, NORMAL, REMOVES_SPACES
from hearthd.baker.weights.source import TokenizerError
from hearthd.bundle.parsing.text_files import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Numbers of fields of the messages.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _UNKNOWN_ID, _BOS_ID, _EOS_ID = 3, 40, 41, 42
_CHARACTER_MAP, _ADDS_PREFIX, _REMOVES_SPACES = 2, 3, 4
# Their values in a file that leaves them out.
_USUAL = {_MODEL_TYPE: 1, _UNKNOWN_ID: 0, _BOS_ID: 1, _EOS_ID: 2}
# Types of models, by their names in GGUF files.
_MODELS = {1: "t5", 2: "llama"}


def read_sentencepiece(path: Path) -> dict[str, object]:
    """The metadata of a GGUF file with the vocabulary of a tokenizer.model.

    Raises TokenizerError for a file that is corrupt or of another kind, and OSError.
    """
    try:
        return _metadata(read_bytes(path))
    except (IndexError, struct.error, ValueError, _NotAMessage):
        raise TokenizerError(f"{path} is not a model of SentencePiece") from None
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error}") from error


class _NotAMessage(Exception):
    """Bytes are not a protocol buffer."""


def _metadata(data: bytes) -> dict[str, object]:
    parts: dict[int, list[dict[int, int | bytes]]] = {_PIECES: [], _TRAINER: [], _NORMALIZER: []}
    for number, value in _fields(data):
        if number in parts:
            parts[number].append(dict(_fields(value)) if isinstance(value, bytes) else {})
    if not parts[_PIECES] or not parts[_TRAINER]:
        raise _NotAMessage
    trainer = _USUAL | parts[_TRAINER][-1]
    normalizer = {_ADDS_PREFIX: 1, _REMOVES_SPACES: 1} | dict(*parts[_NORMALIZER][-1:])
    model = _MODELS.get(int(trainer[_MODEL_TYPE]))
    if model is None:
        raise TokenizerError("its vocabulary is of words or characters, expected BPE or unigrams")
    changes: dict[str, object] = {REMOVES_SPACES: bool(normalizer[_REMOVES_SPACES])}
    if isinstance(character_map := normalizer.get(_CHARACTER_MAP), bytes) and character_map:
        changes[CHARACTER_MAP] = list(character_map)
    tokens, scores, types = map(list, zip(*map(_piece, parts[_PIECES]), strict=True))
    if any(" " in token for token in tokens):
        raise TokenizerError("a token has a space, which it reads in another way than transformers")
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.add_space_prefix": bool(normalizer[_ADDS_PREFIX]),
        **changes,
        "tokenizer.ggml.unknown_token_id": trainer[_UNKNOWN_ID],
        "tokenizer.ggml.bos_token_id": trainer[_BOS_ID],
        "tokenizer.ggml.eos_token_id": trainer[_EOS_ID],
    }


def _piece(fields: Mapping[int, int | bytes]) -> tuple[str, float, int | bytes]:
    """The text, the score and the type of a token."""
    text, score = fields.get(_TEXT), fields.get(_SCORE, bytes(4))
    if not isinstance(text, bytes) or not isinstance(score, bytes):
        raise _NotAMessage
    return text.decode(), struct.unpack("<f", score)[0], fields.get(_TYPE, NORMAL)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message by their numbers: integers, or the bytes of other values.

    Raises _NotAMessage or IndexError for other bytes.
    """
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        match key & 7:
            case 0:
                value, position = _varint(data, position)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, position = _varint(data, position)
            case 5:
                size = 4
            case _:
                raise _NotAMessage
        if position + size > len(data):
            raise _NotAMessage
        yield key >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """An integer in groups of 7 bits, the lowest first, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise _NotAMessage
