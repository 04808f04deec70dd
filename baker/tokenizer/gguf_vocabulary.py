"""Convert the vocabulary of a GGUF file to a tokenizer of the `tokenizers` library.

The types, by llama.cpp's names, are `llama`, SentencePiece BPE, whose merges are not in the file
and are reconstructed here; `gpt2`, BPE over bytes, whose merges are in the file, but only a name of
the rule that splits text into words; and for encoders `bert`, WordPiece, and `t5`, SentencePiece's
unigrams as XLM-RoBERTa has them.
"""

from __future__ import annotations

import math
import operator
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram, WordPiece

from hearthd.baker.tokenizer.unused_merges import used_merges
from hearthd.baker.tokenizer.word_rules import WORD_RULES
from hearthd.baker.weights.source import TokenizerError
from hearthd.text.tokenizer_json import no_panic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

# GGUF's token types (llama.cpp's names).
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
# SentencePiece's character for a space.
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
# Maximum characters of a token: the time to try every split is quadratic in it.
_MAX_CHARACTERS = 1024


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
    """The token that starts a text, the one that is named so, and those that end a text."""

    bos: int | None
    named_bos: int | None
    eos: list[int]


def convert(metadata: Mapping[str, object], *, whole_texts: bool = False) -> Tokenizer:
    """The tokenizer of GGUF metadata; raises TokenizerError for unsupported types.

    `whole_texts` are not continued, so a token may end them.
    """
    model = _value(metadata, "model", str)
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
    """Put the tokens that a file says around texts, and between those of a pair."""
    size = tokenizer.get_vocab_size()
    bos_id = gguf_specials(metadata).bos
    before = [] if bos_id is None else [bos_id]
    behind = [_id(metadata, "eos", size)] if _adds(metadata, "eos") else []
    between = [_id(metadata, "seperator", size)] if _adds(metadata, "sep") else before
    special = {id_: str(tokenizer.id_to_token(id_)) for id_ in (*before, *between, *behind)}
    if special:
        start, end = ([special[id_] for id_ in ids] for ids in (before, behind))
        both = ["$A", *(f"{special[id_]}:1" for id_ in between), "$B:1"]
        single, pair = (" ".join([*start, *texts, *end]) for texts in (["$A"], both))
        _surround(tokenizer, single, pair, [(name, id_) for id_, name in special.items()])


def _surround(
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


def gguf_specials(metadata: Mapping[str, object]) -> Specials:
    """The special tokens in GGUF metadata; raises TokenizerError."""
    tokens = _list(metadata, "tokens", str)
    metadata = _with_defaults(metadata)
    add_bos = _value(metadata, "add_bos_token", bool)
    named = "tokenizer.ggml.bos_token_id" in metadata
    return Specials(
        bos=_id(metadata, "bos", len(tokens)) if add_bos else None,
        named_bos=_id(metadata, "bos", len(tokens)) if named else None,
        eos=[
            _id(metadata, name, len(tokens))
            for name in ("eos", "eot")
            if f"tokenizer.ggml.{name}_token_id" in metadata
        ],
    )


def _with_defaults(metadata: Mapping[str, object]) -> dict[str, object]:
    """The metadata, where missing keys have the values that llama.cpp gives them.

    In byte BPE, the rule for words decides whether a text starts with a token.
    """
    model = metadata.get("tokenizer.ggml.model")
    rule = WORD_RULES.get(str(metadata.get("tokenizer.ggml.pre")))
    adds_bos = bool(rule and rule.adds_bos) if model == "gpt2" else model == "llama"
    missing = {**_DEFAULT_IDS.get(str(model), {}), "add_bos_token": adds_bos}
    return {**{f"tokenizer.ggml.{name}": value for name, value in missing.items()}, **metadata}


def _vocabulary(metadata: Mapping[str, object]) -> tuple[list[str], list[int]]:
    """The token and the type of each id. Raises TokenizerError."""
    tokens = _list(metadata, "tokens", str)
    has_types = "tokenizer.ggml.token_type" in metadata
    types = _list(metadata, "token_type", int) if has_types else [_NORMAL] * len(tokens)
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
    for left, right in merges:
        for token in (left, right, left + right):
            if token not in vocabulary:
                raise TokenizerError(
                    f"tokenizer.ggml.merges: '{left} {right}' needs the token {token!r:.80}, which "
                    "tokenizer.ggml.tokens does not have"
                )
    tokenizer = _bpe(vocab=vocabulary, merges=merges, ignore_merges=rule.whole_words)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(rule.parts))
    if rule.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(_added(tokens, types))
    return tokenizer


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
    stored, types = _vocabulary(metadata)
    scores = _scores(metadata, len(stored))
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
    return [(token[:-minus_cut], token[-minus_cut:]) for _, minus_cut, _, token in merges]


# --- encoders


def _wordpiece(metadata: Mapping[str, object]) -> Tokenizer:
    """BERT's WordPiece: the start of a word has SentencePiece's space, what continues it has none.

    Files do not say whether letters become lower-case and lose their accents: they do unless a
    token has a capital letter; accents stay if a token has one.
    """
    stored, types = _vocabulary(metadata)
    tokens = [_wordpiece_token(token, type_) for token, type_ in zip(stored, types, strict=True)]
    words = "".join(token for token in tokens if not _in_brackets(token))
    lowercase = words == words.lower()
    accents = any(unicodedata.category(c) == "Mn" for c in unicodedata.normalize("NFD", words))
    names = ("cls", "seperator", "unknown", "padding", "mask")  # GGUF spells it so
    special = [tokens[_id(metadata, name, len(tokens))] for name in names]
    cls, separator, unknown, *_ = special
    id_of = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(WordPiece(vocab=id_of, unk_token=unknown, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=lowercase and not accents
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    single, ids = f"{cls} $A {separator}", [(token, id_of[token]) for token in (cls, separator)]
    _surround(tokenizer, single, f"{single} $B:1 {separator}:1", ids)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return tokenizer


def _wordpiece_token(stored: str, type_: int) -> str:
    if stored.startswith(_SPACE) and stored != _SPACE:
        return stored.removeprefix(_SPACE)
    return stored if type_ == _CONTROL or _in_brackets(stored) else f"##{stored}"


def _in_brackets(token: str) -> bool:
    """Whether a token is one like [CLS] or [unused1], which no text is split into."""
    return len(token) > 2 and token.startswith("[") and token.endswith("]")


def _unigram(metadata: Mapping[str, object]) -> Tokenizer:
    """SentencePiece's unigrams with the words and the special tokens of XLM-RoBERTa.

    Files have no <mask>, which is for training.
    """
    if not metadata.get("tokenizer.ggml.add_space_prefix", True):
        raise TokenizerError("tokenizer.ggml.add_space_prefix = false is not supported")
    tokens, types = _vocabulary(metadata)
    scores = _scores(metadata, len(tokens))
    # What fills up the vocabulary has a score that would change that of unknown characters.
    used = [score for score, type_ in zip(scores, types, strict=True) if type_ != _UNUSED]
    lowest = min(used, default=0.0)
    pairs = [(token, max(score, lowest)) for token, score in zip(tokens, scores, strict=True)]
    tokenizer = Tokenizer(Unigram(pairs, _id(metadata, "unknown", len(tokens)), False))
    if "tokenizer.ggml.precompiled_charsmap" in metadata:
        tokenizer.normalizer = _charsmap(_list(metadata, "precompiled_charsmap", int))
    metaspace = pre_tokenizers.Metaspace(_SPACE, "always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    tokenizer.decoder = decoders.Metaspace(_SPACE, "always")
    bos, eos = (tokens[_id(metadata, name, len(tokens))] for name in ("bos", "eos"))
    single, ids = f"{bos} $A {eos}", [(token, tokens.index(token)) for token in (bos, eos)]
    _surround(tokenizer, single, f"{single} {eos} $B {eos}", ids)
    tokenizer.add_tokens(_added(tokens, types))
    return tokenizer


def _charsmap(values: Sequence[int]) -> normalizers.Normalizer:
    try:
        with no_panic():
            return normalizers.Precompiled(bytes(values))
    # The library raises plain Exception.
    except Exception as error:
        raise TokenizerError(f"tokenizer.ggml.precompiled_charsmap: {error}") from error


_MAKE = {"llama": _sentencepiece, "gpt2": _byte_bpe}
_MAKE_FOR_ENCODERS = {"bert": _wordpiece, "t5": _unigram}
SUPPORTED_TYPES = (*_MAKE, *_MAKE_FOR_ENCODERS)

# --- metadata


def _id(metadata: Mapping[str, object], name: str, size: int) -> int:
    token = _value(metadata, f"{name}_token_id", int)
    if isinstance(token, bool) or not 0 <= token < size:
        raise TokenizerError(
            f"tokenizer.ggml.{name}_token_id is {token}, but there are {size} tokens"
        )
    return token


def _scores(metadata: Mapping[str, object], count: int) -> list[float]:
    """The score of each of `count` tokens."""
    scores = _list(metadata, "scores", float)
    if not all(map(math.isfinite, scores)):
        raise TokenizerError("tokenizer.ggml.scores has a score that is not finite")
    if len(scores) != count:
        raise TokenizerError(f"the vocabulary has {count} tokens but {len(scores)} scores")
    return scores


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
