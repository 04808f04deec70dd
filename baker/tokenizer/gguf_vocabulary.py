"""The tokenizer of a GGUF file's vocabulary, as the `tokenizers` library has it.

Two kinds are converted, by llama.cpp's names: `llama` is SentencePiece BPE, of which a file leaves
out the merges: here they are found again; `gpt2` is BPE over bytes, of which a file has the merges
but only a name for the rule that cuts a text into words. Knows vocabularies, not architectures.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from baker.weights.source import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

# GGUF's token types (llama.cpp's names).
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
# SentencePiece's sign for a space.
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
# Characters of a token. Every split of one is looked at, which takes the square of its length.
_LONGEST = 1024
# tokenizer.ggml.pre -> how a text is cut into words whose bytes are merged: GPT-2's regular
# expression, after every digit has been set apart. Source: llama.cpp, src/llama-vocab.cpp.
_CUTS: Mapping[str, Sequence[Any]] = {
    "gpt-2": (pre_tokenizers.ByteLevel(add_prefix_space=False),),
    "smollm": (
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ),
}


@dataclass(frozen=True)
class Specials:
    """The token in front of a text, those that end one, and every token's id."""

    bos: int | None
    eos: list[int]
    id_of: Mapping[str, int]


def convert(metadata: Mapping[str, object]) -> Tokenizer:
    """The tokenizer of GGUF metadata; raises TokenizerError for what is not converted."""
    model = _value(metadata, "model", str)
    if model not in _MAKE:
        raise TokenizerError(
            f"tokenizer.ggml.model is {model!r}, only {' and '.join(map(repr, _MAKE))} are "
            "converted: use the Hugging Face folder of the model"
        )
    if metadata.get("tokenizer.ggml.add_eos_token", False):
        raise TokenizerError("tokenizer.ggml.add_eos_token is true: not converted")
    tokenizer = _MAKE[model](metadata)
    bos_id = specials(metadata).bos
    if bos_id is not None:
        bos = tokenizer.id_to_token(bos_id)
        try:
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, bos_id)]
            )
        # The library raises plain Exception.
        except Exception as error:
            raise TokenizerError(f"{bos!r:.80} cannot be the token in front: {error}") from error
    return tokenizer


def specials(metadata: Mapping[str, object]) -> Specials:
    """The special tokens that GGUF metadata name; raises TokenizerError."""
    tokens = _list(metadata, "tokens", str)
    # A byte BPE has none in front unless the file says so, as in llama.cpp.
    if metadata.get("tokenizer.ggml.model") == "gpt2":
        metadata = {"tokenizer.ggml.add_bos_token": False, **metadata}
    in_front = _value(metadata, "add_bos_token", bool)
    return Specials(
        bos=_id(metadata, "bos", len(tokens)) if in_front else None,
        eos=[
            _id(metadata, name, len(tokens))
            for name in ("eos", "eot")
            if f"tokenizer.ggml.{name}_token_id" in metadata
        ],
        id_of={token: i for i, token in enumerate(tokens)},
    )


def _vocabulary(metadata: Mapping[str, object]) -> tuple[list[str], list[int]]:
    """Each id's token and type. Raises TokenizerError."""
    tokens = _list(metadata, "tokens", str)
    types = _list(metadata, "token_type", int)
    if len(tokens) != len(types):
        raise TokenizerError(f"the vocabulary has {len(tokens)} tokens, {len(types)} types")
    id_of = {token: i for i, token in enumerate(tokens)}
    if len(id_of) != len(tokens):
        twice = next(token for i, token in enumerate(tokens) if id_of[token] != i)
        raise TokenizerError(f"tokenizer.ggml.tokens has {twice!r:.80} twice")
    longest = max(tokens, key=len, default="")
    if len(longest) > _LONGEST:
        raise TokenizerError(
            f"tokenizer.ggml.tokens has one of {len(longest)} characters, wanted {_LONGEST} at most"
        )
    return tokens, types


def _added(tokens: Sequence[str], types: Sequence[int]) -> list[AddedToken]:
    """The tokens that are found in a text before anything else is done with it."""
    return [
        AddedToken(token, special=kind != _USER_DEFINED, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]


# --- byte BPE


def _byte_bpe(metadata: Mapping[str, object]) -> Tokenizer:
    """GPT-2's kind: a token is text whose characters stand for bytes, and merges are in the file.

    A byte that the vocabulary lacks has no token and is left out, as in llama.cpp.
    """
    cut = _value(metadata, "pre", str)
    if cut not in _CUTS:
        raise TokenizerError(
            f"tokenizer.ggml.pre is {cut!r}, only {' and '.join(map(repr, _CUTS))} are converted: "
            "use the Hugging Face folder of the model"
        )
    tokens, types = _vocabulary(metadata)
    merges = []
    for merge in _list(metadata, "merges", str):
        left, space, right = merge.partition(" ")
        if not (left and space and right):
            raise TokenizerError(f"tokenizer.ggml.merges has {merge!r:.80}, wanted two parts")
        merges.append((left, right))
    tokenizer = _bpe(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(_CUTS[cut]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(_added(tokens, types))
    return tokenizer


def _bpe(**parts: Any) -> Tokenizer:
    try:
        return Tokenizer(BPE(**parts))
    # The library raises plain Exception.
    except Exception as error:
        raise TokenizerError(f"tokenizer.ggml.merges do not fit the tokens: {error}") from error


# --- SentencePiece BPE


def _sentencepiece(metadata: Mapping[str, object]) -> Tokenizer:
    """A SentencePiece BPE vocabulary as a `tokenizers` BPE with byte fallback."""
    # Absent means true to llama.cpp.
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        raise TokenizerError("tokenizer.ggml.add_space_prefix is not false: not converted")
    stored, types = _vocabulary(metadata)
    scores = _list(metadata, "scores", float)
    if not all(map(math.isfinite, scores)):
        raise TokenizerError("tokenizer.ggml.scores has one that is no number")
    if len(scores) != len(stored):
        raise TokenizerError(f"the vocabulary has {len(stored)} tokens, {len(scores)} scores")
    # A space of a user-defined token becomes its sign.
    tokens = [
        token.replace(" ", _SPACE) if kind == _USER_DEFINED else token
        for token, kind in zip(stored, types, strict=True)
    ]
    id_of = {token: i for i, token in enumerate(tokens)}
    tokenizer = _bpe(
        vocab=id_of,
        merges=_merges(tokens, types, scores, id_of),
        unk_token=tokens[_id(metadata, "unknown", len(tokens))],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_tokens(_added(tokens, types))
    return tokenizer


def _merges(
    tokens: Sequence[str],
    types: Sequence[int],
    scores: Sequence[float],
    id_of: Mapping[str, int],
) -> list[tuple[str, str]]:
    """Every split of a token into two tokens, the first to be applied first.

    The order is that of Hugging Face's conversion: the best score of the whole first, then the
    longest left and right part, then the smallest id of the whole.
    """
    merges = []
    for token, kind, stored_score in zip(tokens, types, scores, strict=True):
        if kind not in (_NORMAL, _USER_DEFINED):
            continue
        # GGUF gives user-defined tokens a score below all others, SentencePiece gives them 0.
        score = 0.0 if kind == _USER_DEFINED else stored_score
        merges += [
            (-score, -cut, cut - len(token), token)
            for cut in range(1, len(token))
            if token[:cut] in id_of and token[cut:] in id_of
        ]
    # By key alone: the sort is stable, and the vocabulary's order decides between equals.
    merges.sort(key=operator.itemgetter(0, 1, 2))
    return [(token[:-left], token[-left:]) for _, left, _, token in merges]


_MAKE = {"llama": _sentencepiece, "gpt2": _byte_bpe}

# --- metadata


def _id(metadata: Mapping[str, object], name: str, size: int) -> int:
    token = _value(metadata, f"{name}_token_id", int)
    if isinstance(token, bool) or not 0 <= token < size:
        raise TokenizerError(f"tokenizer.ggml.{name}_token_id is {token} of {size} tokens")
    return token


def _list(metadata: Mapping[str, object], name: str, kind: type[T]) -> list[T]:
    values = _value(metadata, name, list)
    for value in values:
        if type(value) is not kind:
            raise TokenizerError(
                f"tokenizer.ggml.{name} holds {value!r:.80}, wanted values of type {kind.__name__}"
            )
    return values


def _value(metadata: Mapping[str, object], name: str, kind: type[T]) -> T:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, kind):
        raise TokenizerError(
            f"tokenizer.ggml.{name} is {value!r:.80}, wanted a value of type {kind.__name__}"
        )
    return value
