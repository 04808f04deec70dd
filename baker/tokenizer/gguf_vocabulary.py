"""Convert the vocabulary of a GGUF file to a tokenizer of the `tokenizers` library.

The types, by llama.cpp's names, are `llama`, SentencePiece BPE, whose merges are not in the file
and are reconstructed here; `gemma4`, the same with merges in the file; `gpt2`, BPE over bytes,
whose merges are in the file, but only a name of the rule that splits text into words; `t5`,
SentencePiece's unigrams, which encoders have with the words of XLM-RoBERTa; `rwkv`, whose tokens
are the longest ones; and for encoders `bert`, WordPiece, and `whitespace`, BPE over the characters
between spaces.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram

from hearthd.baker.tokenizer.encoder_vocabulary import unigram, wordpiece
from hearthd.baker.tokenizer.longest_tokens import longest_tokens
from hearthd.baker.tokenizer.unused_merges import used_merges
from hearthd.baker.tokenizer.vocabulary_fields import (
    CHARACTER_MAP,
    NORMAL,
    REMOVES_SPACES,
    SPACE,
    USER_DEFINED,
    added_tokens,
    read_id,
    read_list,
    read_scores,
    read_value,
    read_vocabulary,
    surround,
)
from hearthd.baker.tokenizer.word_rules import UNNAMED, WORD_RULES, WordRule
from hearthd.baker.weights.source import TokenizerError
from hearthd.text.tokenizer_json import UNREAD, no_panic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The rules of vocabularies like Gemma 4's in files of the type gpt2.
SPACED_BPE = ("granite-embed-multi-311m", "sarvam-moe")
_POOLING_LAST = 3  # llama.cpp's LLAMA_POOLING_TYPE_LAST
# The ids that llama.cpp assumes where a file does not have them.
_DEFAULT_IDS: Mapping[str, Mapping[str, int]] = {
    "llama": {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0},
    "bert": {
        "cls_token_id": 101, "seperator_token_id": 102, "unknown_token_id": 100,
        "padding_token_id": 0, "mask_token_id": 103,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Specials:
    """The token that starts a text, the token that is named so, and the tokens that end a text."""

    bos: int | None
    named_bos: int | None
    eos: list[int]


def convert(metadata: Mapping[str, object], *, whole_texts: bool = False) -> Tokenizer:
    """The tokenizer of GGUF metadata; raises TokenizerError for unsupported types.

    `whole_texts` are not continued, so a token may end them.
    """
    model = read_value(metadata, "model", str)
    metadata = _with_defaults(metadata)
    if whole_texts and model in _MAKE_FOR_ENCODERS:
        return _MAKE_FOR_ENCODERS[model](metadata)
    if model not in _MAKE:
        supported = {**_MAKE, **(_MAKE_FOR_ENCODERS if whole_texts else {})}
        raise TokenizerError(
            f"tokenizer.ggml.model {model!r} is not supported, only "
            f"{', '.join(map(repr, supported))}; use the Hugging Face folder of the model"
        )
    if _adds(metadata, "eos") and not (whole_texts or _embeds_last_token(metadata)):
        raise TokenizerError("tokenizer.ggml.add_eos_token = true is not supported")
    tokenizer = _MAKE[model](metadata)
    _add_special_tokens(tokenizer, metadata)
    return tokenizer


def _adds(metadata: Mapping[str, object], name: str) -> bool:
    return bool(metadata.get(f"tokenizer.ggml.add_{name}_token", False))


def _embeds_last_token(metadata: Mapping[str, object]) -> bool:
    """Whether the vector of a text is the state of the token behind it, as in Qwen3-Embedding."""
    return metadata.get(f"{metadata.get('general.architecture')}.pooling_type") == _POOLING_LAST


def _add_special_tokens(tokenizer: Tokenizer, metadata: Mapping[str, object]) -> None:
    """Put the tokens that a file says around texts, and between the texts of a pair."""
    size = tokenizer.get_vocab_size()
    bos_id = gguf_specials(metadata).bos
    before = [] if bos_id is None else [bos_id]
    behind = [read_id(metadata, "eos", size)] if _adds(metadata, "eos") else []
    between = [read_id(metadata, "seperator", size)] if _adds(metadata, "sep") else before
    rule = _rule(metadata)
    if rule is not None and rule.joins_twice:
        between = [*behind, *between]
    special = {id_: str(tokenizer.id_to_token(id_)) for id_ in (*before, *between, *behind)}
    if special:
        start, end = ([special[id_] for id_ in ids] for ids in (before, behind))
        both = ["$A", *(f"{special[id_]}:1" for id_ in between), "$B:1"]
        single, pair = (" ".join([*start, *texts, *end]) for texts in (["$A"], both))
        surround(tokenizer, single, pair, [(name, id_) for id_, name in special.items()])


def gguf_specials(metadata: Mapping[str, object]) -> Specials:
    """The special tokens in GGUF metadata; raises TokenizerError."""
    tokens = read_list(metadata, "tokens", str)
    metadata = _with_defaults(metadata)
    add_bos = read_value(metadata, "add_bos_token", bool)
    named = "tokenizer.ggml.bos_token_id" in metadata
    return Specials(
        bos=read_id(metadata, "bos", len(tokens)) if add_bos else None,
        named_bos=read_id(metadata, "bos", len(tokens)) if named else None,
        eos=[
            read_id(metadata, name, len(tokens))
            for name in ("eos", "eot")
            if f"tokenizer.ggml.{name}_token_id" in metadata
        ],
    )


def _with_defaults(metadata: Mapping[str, object]) -> dict[str, object]:
    """The metadata, where missing keys have the values that llama.cpp gives them.

    In byte BPE, the rule for words decides whether a text starts with a token.
    """
    model, rule = metadata.get("tokenizer.ggml.model"), _rule(metadata)
    adds_bos = bool(rule and rule.adds_bos) if model == "gpt2" else model in ("llama", "gemma4")
    missing = {**_DEFAULT_IDS.get(str(model), {}), "add_bos_token": adds_bos}
    return {**{f"tokenizer.ggml.{name}": value for name, value in missing.items()}, **metadata}


# --- byte BPE


def names_no_rule(metadata: Mapping[str, object]) -> bool:
    """Whether a file has byte BPE and does not say how words are split."""
    return _rule(metadata) is WORD_RULES[UNNAMED]


def _rule(metadata: Mapping[str, object]) -> WordRule | None:
    """How byte BPE splits words, if the rule is known."""
    if metadata.get("tokenizer.ggml.model") != "gpt2":
        return None
    return WORD_RULES.get(str(metadata.get("tokenizer.ggml.pre", UNNAMED)))


def _byte_bpe(metadata: Mapping[str, object]) -> Tokenizer:
    """GPT-2's BPE: the characters of a token represent bytes, and merges are in the file.

    A byte that is not in the vocabulary is skipped, as in llama.cpp.
    """
    if metadata.get("tokenizer.ggml.pre") in SPACED_BPE:
        return _gemma4(metadata)
    rule = _rule(metadata)
    if rule is None:
        raise TokenizerError(
            f"tokenizer.ggml.pre {metadata['tokenizer.ggml.pre']!r:.80} is not supported, only "
            f"{', '.join(WORD_RULES)}; use the Hugging Face folder of the model"
        )
    tokens, types = read_vocabulary(metadata)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = _merges(metadata, vocabulary)
    tokenizer = _bpe(vocab=vocabulary, merges=merges, ignore_merges=rule.whole_words)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(rule.parts))
    if rule.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(added_tokens(tokens, types))
    return tokenizer


def _whitespace_bpe(metadata: Mapping[str, object]) -> Tokenizer:
    """BPE over the characters between spaces, which are dropped.

    A character without a token is written as its bytes if these are tokens, or else dropped, as in
    llama.cpp.
    """
    tokens, types = read_vocabulary(metadata)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = _merges(metadata, vocabulary)
    tokenizer = _bpe(vocab=vocabulary, merges=merges, byte_fallback=True)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if metadata.get("tokenizer.ggml.normalizer.lowercase"):
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_tokens(added_tokens(tokens, types))
    _add_special_tokens(tokenizer, metadata)
    return tokenizer


def _merges(metadata: Mapping[str, object], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges in a file, of tokens in its vocabulary. Raises TokenizerError."""
    merges = []
    for merge in read_list(metadata, "merges", str):
        left, space, right = merge.partition(" ")
        if not (left and space and right):
            raise TokenizerError(f"tokenizer.ggml.merges has {merge!r:.80}, expected two parts")
        for token in (left, right, left + right):
            if token not in vocabulary:
                raise TokenizerError(
                    f"tokenizer.ggml.merges: {f'{left} {right}'!r:.80} needs the token "
                    f"{token!r:.80}, which tokenizer.ggml.tokens does not have"
                )
        merges.append((left, right))
    return merges


def _bpe(**parts: Any) -> Tokenizer:
    try:
        with no_panic():
            return Tokenizer(BPE(**parts))
    # The library raises plain Exception.
    except Exception as error:
        raise TokenizerError(f"tokenizer.ggml.merges do not match the tokens: {error}") from error


# --- SentencePiece BPE


def _sentencepiece(metadata: Mapping[str, object]) -> Tokenizer:
    """A SentencePiece BPE vocabulary as BPE with byte fallback."""
    stored, types = read_vocabulary(metadata)
    # A space in a user-defined token becomes SentencePiece's character.
    tokens = [
        token.replace(" ", SPACE) if type_ == USER_DEFINED else token
        for token, type_ in zip(stored, types, strict=True)
    ]
    merges = merges_of(tokens, types, read_scores(metadata, len(stored)))
    return _with_spaces(
        _fallback_bpe(metadata, tokens, merges), tokens, types, prefixed=_prefixed(metadata)
    )


def _gemma4(metadata: Mapping[str, object]) -> Tokenizer:
    """Gemma 4's vocabulary as BPE with byte fallback: its merges are in the file.

    A run of line ends is not merged with other characters.
    """
    tokens, types = read_vocabulary(metadata)
    merges = _merges(metadata, {token: i for i, token in enumerate(tokens)})
    bpe = _fallback_bpe(metadata, tokens, merges)
    bpe.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    return _with_spaces(bpe, tokens, types, prefixed=False)


def _unigrams(metadata: Mapping[str, object]) -> Tokenizer:
    """SentencePiece's unigrams for answers, with byte fallback.

    The names of special tokens and of bytes are in the vocabulary, but are not read in a text.
    """
    if CHARACTER_MAP in metadata or metadata.get(REMOVES_SPACES):
        raise TokenizerError("it changes characters or removes spaces, which is not supported")
    tokens, types = read_vocabulary(metadata)
    scores = read_scores(metadata, len(tokens))
    pairs = [
        (token, score if type_ == NORMAL else UNREAD)
        for token, type_, score in zip(tokens, types, scores, strict=True)
    ]
    tokenizer = Tokenizer(Unigram(pairs, read_id(metadata, "unknown", len(tokens)), True))
    return _with_spaces(tokenizer, tokens, types, prefixed=_prefixed(metadata))


def _prefixed(metadata: Mapping[str, object]) -> bool:
    """Whether a text gets a space in front; absent means true to llama.cpp."""
    return bool(metadata.get("tokenizer.ggml.add_space_prefix", True))


def _fallback_bpe(
    metadata: Mapping[str, object], tokens: Sequence[str], merges: Sequence[tuple[str, str]]
) -> Tokenizer:
    """BPE over characters.

    A character without a token is written as its bytes, or as the unknown token if there is one.
    """
    named = "tokenizer.ggml.unknown_token_id" in metadata
    unknown = tokens[read_id(metadata, "unknown", len(tokens))] if named else None
    return _bpe(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=used_merges(merges, unknown),
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=True,
    )


def _with_spaces(
    tokenizer: Tokenizer, tokens: Sequence[str], types: Sequence[int], *, prefixed: bool
) -> Tokenizer:
    """A tokenizer in which SentencePiece's character is a space; `prefixed` texts get one.

    The decoder keeps that space: texts are decoded in pieces.
    """
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    if prefixed:
        prefix = normalizers.Prepend(SPACE)
        tokenizer.normalizer = normalizers.Sequence([prefix, tokenizer.normalizer])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_tokens(added_tokens(tokens, types))
    return tokenizer


def merges_of(
    tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """Every split of a token into two tokens, in the order of application.

    The order is as in Hugging Face's conversion: by the highest score of the token, then the
    longest left and right part, then the smallest id of the token.
    """
    known, merges = set(tokens), []
    for token, type_, stored_score in zip(tokens, types, scores, strict=True):
        if type_ not in (NORMAL, USER_DEFINED):
            continue
        # GGUF gives user-defined tokens a score below all others, SentencePiece gives them 0.
        score = 0.0 if type_ == USER_DEFINED else stored_score
        merges += [
            (-score, -cut, cut - len(token), token)
            for cut in range(1, len(token))
            if token[:cut] in known and token[cut:] in known
        ]
    # The sort is stable: equal keys keep the order of the vocabulary.
    merges.sort(key=operator.itemgetter(0, 1, 2))
    return [(token[:-minus_cut], token[-minus_cut:]) for _, minus_cut, _, token in merges]


_MAKE = {
    "llama": _sentencepiece, "gpt2": _byte_bpe, "gemma4": _gemma4, "t5": _unigrams,
    "rwkv": longest_tokens,
}  # fmt: skip
_MAKE_FOR_ENCODERS = {"bert": wordpiece, "t5": unigram, "whitespace": _whitespace_bpe}
SUPPORTED_TYPES = tuple({**_MAKE, **_MAKE_FOR_ENCODERS})
