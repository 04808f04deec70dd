"""Read the fields of a vocabulary in GGUF metadata; what is wrong with them is a TokenizerError."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from tokenizers import AddedToken, Tokenizer, processors

from hearthd.baker.weights.source import TokenizerError
from hearthd.text.tokenizer_json import no_panic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

# GGUF's token types (llama.cpp's names).
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5
# Keys of what SentencePiece does to a text before it is read.
CHARACTER_MAP = "tokenizer.ggml.precompiled_charsmap"
REMOVES_SPACES = "tokenizer.ggml.remove_extra_whitespaces"
# SentencePiece's character for a space.
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
# Maximum characters of a token: the time to try every split is quadratic in it.
MAX_CHARACTERS = 1024


def read_vocabulary(metadata: Mapping[str, object]) -> tuple[list[str], list[int]]:
    """The token and the type of each id. Raises TokenizerError."""
    tokens = read_list(metadata, "tokens", str)
    has_types = "tokenizer.ggml.token_type" in metadata
    types = read_list(metadata, "token_type", int) if has_types else [NORMAL] * len(tokens)
    if len(tokens) != len(types):
        raise TokenizerError(f"the vocabulary has {len(tokens)} tokens but {len(types)} types")
    id_of = {token: i for i, token in enumerate(tokens)}
    if len(id_of) != len(tokens):
        duplicate = next(token for i, token in enumerate(tokens) if id_of[token] != i)
        raise TokenizerError(f"tokenizer.ggml.tokens has {duplicate!r:.80} twice")
    longest = max(tokens, key=len, default="")
    if len(longest) > MAX_CHARACTERS:
        raise TokenizerError(
            f"a token in tokenizer.ggml.tokens has {len(longest)} characters, expected at most "
            f"{MAX_CHARACTERS}"
        )
    return tokens, types


def added_tokens(tokens: Sequence[str], types: Sequence[int]) -> list[AddedToken]:
    """The tokens that are matched in a text before anything else."""
    return [
        AddedToken(token, special=type_ != USER_DEFINED, normalized=False)
        for token, type_ in zip(tokens, types, strict=True)
        if type_ in (UNKNOWN, CONTROL, USER_DEFINED)
    ]


def surround(
    tokenizer: Tokenizer, single: str, pair: str, special: Sequence[tuple[str, int]]
) -> None:
    """Put special tokens around texts and pairs of texts; raises TokenizerError."""
    try:
        with no_panic():
            tokenizer.post_processor = processors.TemplateProcessing(
                single=single, pair=pair, special_tokens=special
            )
    # The library raises plain Exception.
    except Exception as error:
        raise TokenizerError(f"{special[0][0]!r:.80} cannot start a text: {error}") from error


def read_id(metadata: Mapping[str, object], name: str, size: int) -> int:
    """The id of a special token, below `size`; raises TokenizerError."""
    token = read_value(metadata, f"{name}_token_id", int)
    if isinstance(token, bool) or not 0 <= token < size:
        raise TokenizerError(
            f"tokenizer.ggml.{name}_token_id is {token}, but there are {size} tokens"
        )
    return token


def read_scores(metadata: Mapping[str, object], count: int) -> list[float]:
    """The score of each of `count` tokens; raises TokenizerError."""
    scores = read_list(metadata, "scores", float)
    if not all(map(math.isfinite, scores)):
        raise TokenizerError("tokenizer.ggml.scores has a score that is not finite")
    if len(scores) != count:
        raise TokenizerError(f"the vocabulary has {count} tokens but {len(scores)} scores")
    return scores


def read_list(metadata: Mapping[str, object], name: str, type_: type[T]) -> list[T]:
    """A list whose values all have one type; raises TokenizerError."""
    values = read_value(metadata, name, list)
    for value in values:
        if type(value) is not type_:
            raise TokenizerError(
                f"tokenizer.ggml.{name} has {value!r:.80}, expected values of type {type_.__name__}"
            )
    return values


def read_value(metadata: Mapping[str, object], name: str, type_: type[T]) -> T:
    """A value of a type; raises TokenizerError."""
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None:
        raise TokenizerError(
            f"tokenizer.ggml.{name} is missing; convert the model again with llama.cpp"
        )
    if not isinstance(value, type_):
        raise TokenizerError(
            f"tokenizer.ggml.{name} is {value!r:.80}, expected a value of type {type_.__name__}"
        )
    return value


def _characters() -> dict[int, str]:
    """The character that represents each byte in GPT-2's vocabulary: itself if it is printable."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + index) for index, byte in enumerate(others)
    }


_CHARACTERS = _characters()


def byte_characters(token: bytes) -> str:
    """The characters that represent bytes in GPT-2's vocabulary."""
    return "".join(_CHARACTERS[byte] for byte in token)
