"""Convert the vocabulary of a GGUF file to a tokenizer of the `tokenizers` library.

Two types are supported, by llama.cpp's names: `llama` is SentencePiece BPE, whose merges are not in
the file and are reconstructed here; `gpt2` is BPE over bytes, whose merges are in the file, but
only a name of the rule that splits text into words.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from baker.tokenizer.unused_merges import used_merges
from baker.tokenizer.word_rules import WORD_RULES
from baker.weights.source import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

# GGUF's token types (llama.cpp's names).
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
# SentencePiece's character for a space.
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
# Maximum characters of a token: the time to try every split is quadratic in it.
_MAX_CHARACTERS = 1024


@dataclass(frozen=True)
class Specials:
    """The token that starts a text, those that end it, and the id of every token."""

    bos: int | None
    eos: list[int]
    id_of: Mapping[str, int]


def convert(metadata: Mapping[str, object], *, whole_texts: bool = False) -> Tokenizer:
    """The tokenizer of GGUF metadata; raises TokenizerError for unsupported types.

    `whole_texts` are not continued, so a token may end them.
    """
    model = _value(metadata, "model", str)
    if model not in _MAKE:
        raise TokenizerError(
            f"tokenizer.ggml.model {model!r} is not supported, only "
            f"{' and '.join(map(repr, _MAKE))}; use the Hugging Face folder of the model"
        )
    adds_eos = bool(metadata.get("tokenizer.ggml.add_eos_token", False))
    if adds_eos and not whole_texts:
        raise TokenizerError("tokenizer.ggml.add_eos_token = true is not supported")
    tokenizer = _MAKE[model](metadata)
    bos_id = gguf_specials(metadata).bos
    if bos_id is not None:
        bos = tokenizer.id_to_token(bos_id)
        special, end = [(bos, bos_id)], ""
        if adds_eos:
            eos_id = gguf_specials(metadata).eos[0]
            special.append((tokenizer.id_to_token(eos_id), eos_id))
            end = f" {special[-1][0]}"
        try:
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A{end}", pair=f"{bos} $A {bos}:1 $B:1{end}", special_tokens=special
            )
        # The library raises plain Exception.
        except Exception as error:
            raise TokenizerError(f"{bos!r:.80} cannot start a text: {error}") from error
    return tokenizer


def gguf_specials(metadata: Mapping[str, object]) -> Specials:
    """The special tokens in GGUF metadata; raises TokenizerError."""
    tokens = _list(metadata, "tokens", str)
    # Without the key, the rule for words decides in byte BPE, as in llama.cpp.
    if metadata.get("tokenizer.ggml.model") == "gpt2":
        rule = WORD_RULES.get(str(metadata.get("tokenizer.ggml.pre")))
        metadata = {"tokenizer.ggml.add_bos_token": bool(rule and rule.adds_bos), **metadata}
    add_bos = _value(metadata, "add_bos_token", bool)
    return Specials(
        bos=_id(metadata, "bos", len(tokens)) if add_bos else None,
        eos=[
            _id(metadata, name, len(tokens))
            for name in ("eos", "eot")
            if f"tokenizer.ggml.{name}_token_id" in metadata
        ],
        id_of={token: i for i, token in enumerate(tokens)},
    )


def _vocabulary(metadata: Mapping[str, object]) -> tuple[list[str], list[int]]:
    """The token and the type of each id. Raises TokenizerError."""
    tokens = _list(metadata, "tokens", str)
    types = _list(metadata, "token_type", int)
    if len(tokens) != len(types):
        raise TokenizerError(f"the vocabulary has {len(tokens)} tokens but {len(types)} types")
    id_of = {token: i for i, token in enumerate(tokens)}
    if len(id_of) != len(tokens):
        duplicate = next(token for i, token in enumerate(tokens) if id_of[token] != i)
        raise TokenizerError(f"tokenizer.ggml.tokens has {duplicate!r:.80} twice")
    longest = max(tokens, key=len, default="")
    if len(longest) > _MAX_CHARACTERS:
        raise TokenizerError(
            f"a token in tokenizer.ggml.tokens has {len(longest)} characters, expected at most "
            f"{_MAX_CHARACTERS}"
        )
    return tokens, types


def _added(tokens: Sequence[str], types: Sequence[int]) -> list[AddedToken]:
    """The tokens that are matched in a text before anything else."""
    return [
        AddedToken(token, special=type_ != _USER_DEFINED, normalized=False)
        for token, type_ in zip(tokens, types, strict=True)
        if type_ in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]


# --- byte BPE


def _byte_bpe(metadata: Mapping[str, object]) -> Tokenizer:
    """GPT-2's BPE: the characters of a token represent bytes, and merges are in the file.

    A byte that is not in the vocabulary is skipped, as in llama.cpp.
    """
    name = _value(metadata, "pre", str)
    if name not in WORD_RULES:
        raise TokenizerError(
            f"tokenizer.ggml.pre {name!r} is not supported, only {', '.join(WORD_RULES)}; use the "
            "Hugging Face folder of the model"
        )
    rule = WORD_RULES[name]
    tokens, types = _vocabulary(metadata)
    merges = []
    for merge in _list(metadata, "merges", str):
        left, space, right = merge.partition(" ")
        if not (left and space and right):
            raise TokenizerError(f"tokenizer.ggml.merges has {merge!r:.80}, expected two parts")
        merges.append((left, right))
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = _bpe(vocab=vocabulary, merges=merges, ignore_merges=rule.whole_words)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(rule.parts))
    if rule.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(_added(tokens, types))
    return tokenizer


def _bpe(**parts: Any) -> Tokenizer:
    try:
        return Tokenizer(BPE(**parts))
    # The library raises plain Exception.
    except Exception as error:
        raise TokenizerError(f"tokenizer.ggml.merges do not match the tokens: {error}") from error


# --- SentencePiece BPE


def _sentencepiece(metadata: Mapping[str, object]) -> Tokenizer:
    """A SentencePiece BPE vocabulary as BPE with byte fallback."""
    stored, types = _vocabulary(metadata)
    scores = _list(metadata, "scores", float)
    if not all(map(math.isfinite, scores)):
        raise TokenizerError("tokenizer.ggml.scores has a score that is not finite")
    if len(scores) != len(stored):
        raise TokenizerError(f"the vocabulary has {len(stored)} tokens but {len(scores)} scores")
    # A space in a user-defined token becomes SentencePiece's character.
    tokens = [
        token.replace(" ", _SPACE) if type_ == _USER_DEFINED else token
        for token, type_ in zip(stored, types, strict=True)
    ]
    unknown = tokens[_id(metadata, "unknown", len(tokens))]
    tokenizer = _bpe(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=used_merges(merges_of(tokens, types, scores), unknown),
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    # Absent means true to llama.cpp. The decoder keeps the space: texts are decoded in pieces.
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        prefix = normalizers.Prepend(_SPACE)
        tokenizer.normalizer = normalizers.Sequence([prefix, tokenizer.normalizer])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_tokens(_added(tokens, types))
    return tokenizer


def merges_of(
    tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """Every split of a token into two tokens, in the order of application.

    The order is that of Hugging Face's conversion: by the highest score of the token, then the
    longest left and right part, then the smallest id of the token.
    """
    known, merges = set(tokens), []
    for token, type_, stored_score in zip(tokens, types, scores, strict=True):
        if type_ not in (_NORMAL, _USER_DEFINED):
            continue
        # GGUF gives user-defined tokens a score below all others, SentencePiece gives them 0.
        score = 0.0 if type_ == _USER_DEFINED else stored_score
        merges += [
            (-score, -cut, cut - len(token), token)
            for cut in range(1, len(token))
            if token[:cut] in known and token[cut:] in known
        ]
    # The sort is stable: equal keys keep the order of the vocabulary.
    merges.sort(key=operator.itemgetter(0, 1, 2))
    return [(token[:-left], token[-left:]) for _, left, _, token in merges]


_MAKE = {"llama": _sentencepiece, "gpt2": _byte_bpe}
SUPPORTED_TYPES = tuple(_MAKE)

# --- metadata


def _id(metadata: Mapping[str, object], name: str, size: int) -> int:
    token = _value(metadata, f"{name}_token_id", int)
    if isinstance(token, bool) or not 0 <= token < size:
        raise TokenizerError(
            f"tokenizer.ggml.{name}_token_id is {token}, but there are {size} tokens"
        )
    return token


def _list(metadata: Mapping[str, object], name: str, type_: type[T]) -> list[T]:
    values = _value(metadata, name, list)
    for value in values:
        if type(value) is not type_:
            raise TokenizerError(
                f"tokenizer.ggml.{name} has {value!r:.80}, expected values of type {type_.__name__}"
            )
    return values


def _value(metadata: Mapping[str, object], name: str, type_: type[T]) -> T:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, type_):
        raise TokenizerError(
            f"tokenizer.ggml.{name} is {value!r:.80}, expected a value of type {type_.__name__}"
        )
    return value
