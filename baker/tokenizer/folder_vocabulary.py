"""The tokenizer of a Hugging Face folder without tokenizer.json, from the files of older ones.

A folder has tokenizer.model, a vocabulary of SentencePiece, Mistral's tekken.json, vocab.json and
merges.txt, BERT's vocab.txt, XLM-RoBERTa's sentencepiece.bpe.model, or RWKV's text file. They are
converted as the vocabulary of a GGUF file is, and give the tokens of transformers 5; a
tokenizer.model of unigrams gives SentencePiece's, since transformers 5 reads it as BPE. The third
form does not say how texts are split into words: only Qwen's tokenizer is known by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, normalizers, pre_tokenizers

from hearthd.baker.tokenizer.encoder_vocabulary import wordpiece_of
from hearthd.baker.tokenizer.folder_template import TEKKEN
from hearthd.baker.tokenizer.gguf_vocabulary import convert
from hearthd.baker.tokenizer.longest_tokens import read_rwkv_vocabulary
from hearthd.baker.tokenizer.sentencepiece_model import read_sentencepiece
from hearthd.baker.tokenizer.tekken import read_tekken
from hearthd.baker.tokenizer.vocabulary_fields import (
    CHARACTER_MAP,
    CONTROL,
    NORMAL,
    REMOVES_SPACES,
    SPACE,
    UNKNOWN,
    read_list,
)
from hearthd.baker.weights.safetensors import read_json
from hearthd.baker.weights.source import TokenizerError, read_text
from hearthd.bundle.parsing.text_files import reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokenizers import Tokenizer

_SENTENCEPIECE, _VOCABULARY, _MERGES = "tokenizer.model", "vocab.json", "merges.txt"
_WORDPIECE, _UNIGRAMS = "vocab.txt", "sentencepiece.bpe.model"
RWKV_VOCABULARY = "rwkv_vocab_v20230424.txt"
_CONFIG, _ADDED, _SPECIAL = (
    "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json",
)  # fmt: skip
VOCABULARY_FILES = (
    _SENTENCEPIECE, TEKKEN, _VOCABULARY, _MERGES, _WORDPIECE, _UNIGRAMS, RWKV_VOCABULARY, _ADDED,
    _SPECIAL,
)  # fmt: skip
# Names of the tokenizers that transformers makes of vocab.json, and their rules for words in GGUF.
_RULES = {"Qwen2Tokenizer": "qwen2"}
# BERT's special tokens, where tokenizer_config.json does not name them.
_BERT = {"cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"}
_MAX_DIGITS = 9  # of an id
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def has_vocabulary(folder: Path) -> bool:
    """Whether a folder has the files of a tokenizer that can be converted."""
    names = {path.name for path in folder.iterdir()}
    alone = {_SENTENCEPIECE, TEKKEN, _WORDPIECE, _UNIGRAMS, RWKV_VOCABULARY}
    return bool(alone & names) or {_VOCABULARY, _MERGES} <= names


def folder_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that `has_vocabulary`; raises TokenizerError, which names the file."""
    config = _read_optional(folder / _CONFIG)
    path = folder / _SENTENCEPIECE
    try:
        if path.exists():
            tokenizer = _sentencepiece(path, config)
        elif (path := folder / TEKKEN).exists():
            return read_tekken(path)
        elif (path := folder / RWKV_VOCABULARY).exists():
            names = (token.content for token, id_ in _added_tokens(folder, config) if id_ == 0)
            tokenizer = _converted(path, read_rwkv_vocabulary(path, next(names, "<s>")))
        elif (path := folder / _MERGES).exists():
            tokenizer = _byte_bpe(folder, config)
        elif (path := folder / _WORDPIECE).exists():
            tokenizer = _wordpiece(path, config)
        else:
            path = folder / _UNIGRAMS
            tokenizer = _xlm_roberta(path, config)
    except (OSError, ValueError) as error:
        raise TokenizerError(f"cannot read {path}: {reason(error)}") from error
    for token, id_ in sorted(_added_tokens(folder, config), key=lambda added: added[1]):
        tokenizer.add_tokens([token])
        if tokenizer.token_to_id(token.content) != id_:
            raise TokenizerError(
                f"{folder}: the added token {token.content!r:.80} has the id {id_}, expected "
                f"{tokenizer.token_to_id(token.content)}"
            )
    return tokenizer


def _sentencepiece(path: Path, config: dict[str, Any]) -> Tokenizer:
    metadata = read_sentencepiece(path)
    if CHARACTER_MAP in metadata or metadata[REMOVES_SPACES]:
        raise TokenizerError(
            f"{path}: it changes characters or removes spaces, which is not supported"
        )
    adds = {name: config.get(f"add_{name}_token") for name in ("bos", "eos")}
    metadata["tokenizer.ggml.add_bos_token"] = adds["bos"] is not False
    metadata["tokenizer.ggml.add_eos_token"] = bool(adds["eos"])
    tokenizer = _converted(path, metadata)
    if metadata["tokenizer.ggml.add_space_prefix"]:
        # In front of a text only, unless the folder keeps an error of old versions.
        scheme = "always" if config.get("legacy") else "first"
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, scheme, split=False)
    return tokenizer


def _byte_bpe(folder: Path, config: dict[str, Any]) -> Tokenizer:
    name = str(config.get("tokenizer_class")).removesuffix("Fast")
    if name not in _RULES:
        raise TokenizerError(
            f"{folder / _CONFIG}: tokenizer_class: got {name!r:.80}, supported without "
            f"tokenizer.json is {', '.join(_RULES)}; download tokenizer.json"
        )
    vocabulary = read_json(folder / _VOCABULARY)
    by_id = {id_: token for token, id_ in vocabulary.items() if type(id_) is int}
    if {*by_id} != {*range(len(vocabulary))}:
        raise TokenizerError(f"{folder / _VOCABULARY}: expected the ids 0 to {len(vocabulary) - 1}")
    lines = read_text(folder / _MERGES).split("\n")
    merges = [line for line in lines if line and not line.startswith("#version")]
    return _converted(
        folder / _VOCABULARY,
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": _RULES[name],
            "tokenizer.ggml.tokens": [by_id[id_] for id_ in range(len(by_id))],
            "tokenizer.ggml.merges": merges,
        },
    )


def _require_class(path: Path, config: dict[str, Any], expected: str) -> None:
    """Raise TokenizerError if a vocabulary is for another class of tokenizers."""
    name = str(config.get("tokenizer_class", expected)).removesuffix("Fast")
    if name != expected:
        raise TokenizerError(
            f"{path.with_name(_CONFIG)}: tokenizer_class: got {name!r:.80}, supported with "
            f"{path.name} is {expected}; download tokenizer.json"
        )


def _xlm_roberta(path: Path, config: dict[str, Any]) -> Tokenizer:
    """The vocabulary in the order of fairseq: its first three tokens are others."""
    _require_class(path, config, "XLMRobertaTokenizer")
    metadata = read_sentencepiece(path)
    special: dict[str, tuple[list[Any], list[Any]]] = {
        "tokens": (["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"]),
        "scores": ([0.0] * 4, [0.0]),
        "token_type": ([CONTROL, CONTROL, CONTROL, UNKNOWN], [NORMAL]),
    }
    for name, (first, last) in special.items():
        stored = read_list(metadata, name, type(first[0]))
        metadata[f"tokenizer.ggml.{name}"] = [*first, *stored[3:], *last]
    if metadata["tokenizer.ggml.model"] != "t5":
        raise TokenizerError(f"{path}: got a vocabulary of BPE, expected unigrams")
    metadata |= {
        f"tokenizer.ggml.{name}_token_id": id_
        for id_, name in enumerate(("bos", "padding", "eos", "unknown"))
    }
    tokenizer = _converted(path, metadata, whole_texts=True)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return tokenizer


def _wordpiece(path: Path, config: dict[str, Any]) -> Tokenizer:
    _require_class(path, config, "BertTokenizer")
    normalizer = normalizers.BertNormalizer(
        lowercase=_flag(path, config, "do_lower_case", default=True),
        strip_accents=_flag(path, config, "strip_accents", default=None),
        handle_chinese_chars=_flag(path, config, "tokenize_chinese_chars", default=True),
    )
    named = {name: [*_names(config.get(f"{name}_token"))] for name in _BERT}
    special = [(named[name] or [usual])[0] for name, usual in _BERT.items()]
    tokens = read_text(path).removesuffix("\n").split("\n")
    try:
        return wordpiece_of(tokens, special, normalizer)
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error}") from error


def _flag(path: Path, config: dict[str, Any], name: str, *, default: Any) -> Any:
    """True, false or the default; `path` is of the vocabulary beside the settings."""
    value = config.get(name)
    if not isinstance(value, bool | None):
        raise TokenizerError(
            f"{path.with_name(_CONFIG)}: {name}: got {value!r:.80}, expected true or false"
        )
    return default if value is None else value


def _converted(path: Path, metadata: dict[str, object], *, whole_texts: bool = False) -> Tokenizer:
    """The tokenizer of metadata that were read from a file, which errors name."""
    try:
        return convert(metadata, whole_texts=whole_texts)
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error}") from error


def _added_tokens(folder: Path, config: dict[str, Any]) -> Iterator[tuple[AddedToken, int]]:
    """The tokens that a folder adds to its vocabulary, and their ids."""
    decoder = config.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        for id_, token in decoder.items():
            known = isinstance(token, dict) and "content" in token
            if not (known and id_.isdecimal() and len(id_) <= _MAX_DIGITS):
                raise TokenizerError(
                    f"{folder / _CONFIG}: added_tokens_decoder has {id_!r:.80}: {token!r:.80}, "
                    "expected an id and an object with content"
                )
            given = {name: bool(token.get(name)) for name in _FLAGS}
            yield AddedToken(str(token["content"]), **given), int(id_)
        return
    special = set(_names(_read_optional(folder / _SPECIAL)))
    for content, id_ in _read_optional(folder / _ADDED).items():
        if type(id_) is not int:
            raise TokenizerError(
                f"{folder / _ADDED}: {content!r:.80}: got {id_!r:.80}, expected an id"
            )
        yield AddedToken(content, special=content in special, normalized=False), id_


def _names(value: Any) -> Iterator[str]:
    """The texts of tokens in a value of special_tokens_map.json or tokenizer_config.json."""
    match value:
        case str():
            yield value
        case {"content": str(content)}:
            yield content
        case dict():
            for each in value.values():
                yield from _names(each)
        case list():
            for each in value:
                yield from _names(each)


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
