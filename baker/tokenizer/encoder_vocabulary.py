"""Convert vocabularies of encoders in GGUF files: BERT's WordPiece, XLM-RoBERTa's unigrams."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import Unigram, WordPiece

from hearthd.baker.tokenizer.vocabulary_fields import (
    CHARACTER_MAP,
    CONTROL,
    SPACE,
    UNUSED,
    added_tokens,
    read_id,
    read_list,
    read_scores,
    read_vocabulary,
    surround,
)
from hearthd.baker.weights.source import TokenizerError
from hearthd.text.tokenizer_json import no_panic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def wordpiece(metadata: Mapping[str, object]) -> Tokenizer:
    """BERT's WordPiece: the start of a word has SentencePiece's space, what continues it has none.

    Files do not say whether letters become lower-case and lose their accents: they do unless a
    token has a capital letter; accents stay if a token has one.
    """
    stored, types = read_vocabulary(metadata)
    tokens = [_wordpiece_token(token, type_) for token, type_ in zip(stored, types, strict=True)]
    words = "".join(token for token in tokens if not _in_brackets(token))
    lowercase = words == words.lower()
    accents = any(unicodedata.category(c) == "Mn" for c in unicodedata.normalize("NFD", words))
    names = ("cls", "seperator", "unknown", "padding", "mask")  # GGUF spells it so
    special = [tokens[read_id(metadata, name, len(tokens))] for name in names]
    normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=lowercase and not accents
    )
    return wordpiece_of(tokens, special, normalizer)


def wordpiece_of(
    tokens: Sequence[str], special: Sequence[str], normalizer: normalizers.Normalizer
) -> Tokenizer:
    """BERT's WordPiece of tokens in its own form, such as ##ing; raises TokenizerError.

    `special` are the tokens that begin a text, end it, and are unknown, then others.
    """
    cls, separator, unknown, *_ = special
    id_of = {token: i for i, token in enumerate(tokens)}
    for token in special:
        if token not in id_of:
            raise TokenizerError(f"the vocabulary has no special token {token!r:.80}")
    tokenizer = Tokenizer(WordPiece(vocab=id_of, unk_token=unknown, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    single, ids = f"{cls} $A {separator}", [(token, id_of[token]) for token in (cls, separator)]
    surround(tokenizer, single, f"{single} $B:1 {separator}:1", ids)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return tokenizer


def _wordpiece_token(stored: str, type_: int) -> str:
    if stored.startswith(SPACE) and stored != SPACE:
        return stored.removeprefix(SPACE)
    return stored if type_ == CONTROL or _in_brackets(stored) else f"##{stored}"


def _in_brackets(token: str) -> bool:
    """Whether a token is one like [CLS] or [unused1], which no text is split into."""
    return len(token) > 2 and token.startswith("[") and token.endswith("]")


def unigram(metadata: Mapping[str, object]) -> Tokenizer:
    """SentencePiece's unigrams with the words and the special tokens of XLM-RoBERTa.

    Files have no <mask>, which is for training.
    """
    if not metadata.get("tokenizer.ggml.add_space_prefix", True):
        raise TokenizerError("tokenizer.ggml.add_space_prefix = false is not supported")
    tokens, types = read_vocabulary(metadata)
    scores = read_scores(metadata, len(tokens))
    # What fills up the vocabulary has a score that would change the score of unknown characters.
    used = [score for score, type_ in zip(scores, types, strict=True) if type_ != UNUSED]
    lowest = min(used, default=0.0)
    pairs = [(token, max(score, lowest)) for token, score in zip(tokens, scores, strict=True)]
    tokenizer = Tokenizer(Unigram(pairs, read_id(metadata, "unknown", len(tokens)), False))
    if CHARACTER_MAP in metadata:
        tokenizer.normalizer = _charsmap(read_list(metadata, "precompiled_charsmap", int))
    metaspace = pre_tokenizers.Metaspace(SPACE, "always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    tokenizer.decoder = decoders.Metaspace(SPACE, "always")
    bos, eos = (tokens[read_id(metadata, name, len(tokens))] for name in ("bos", "eos"))
    single, ids = f"{bos} $A {eos}", [(token, tokens.index(token)) for token in (bos, eos)]
    surround(tokenizer, single, f"{single} {eos} $B {eos}", ids)
    tokenizer.add_tokens(added_tokens(tokens, types))
    return tokenizer


def _charsmap(values: Sequence[int]) -> normalizers.Normalizer:
    try:
        with no_panic():
            return normalizers.Precompiled(bytes(values))
    # The library raises plain Exception.
    except Exception as error:
        raise TokenizerError(f"{CHARACTER_MAP}: {error}") from error
