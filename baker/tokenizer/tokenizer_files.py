"""The tokenizer, chat template and special tokens of weights.

A Hugging Face folder has a tokenizer.json; the vocabulary of a GGUF file (gguf_vocabulary.py), or
of a folder with older files (folder_vocabulary.py), is converted to one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hearthd.baker.reference.golden_values import prompt_ids
from hearthd.baker.tokenizer.folder_template import (
    TEMPLATE_FILES,
    TOKENIZER_CONFIG,
    folder_template,
    read_optional,
)
from hearthd.baker.tokenizer.folder_vocabulary import (
    RWKV_VOCABULARY,
    VOCABULARY_FILES,
    folder_tokenizer,
    has_vocabulary,
)
from hearthd.baker.tokenizer.gguf_vocabulary import convert, gguf_specials
from hearthd.baker.tokenizer.longest_tokens import turn_end
from hearthd.baker.tokenizer.unused_merges import drop_unused_merges
from hearthd.baker.weights.safetensors import read_json
from hearthd.baker.weights.source import TokenizerError, path_of, read_text
from hearthd.bundle import TOKENIZER, SpecialTokens
from hearthd.bundle.parsing.file_formats import HEAD_BYTES, other_format
from hearthd.bundle.parsing.text_files import reason
from hearthd.text import tokenizer_json as reader
from hearthd.text.named_templates import NAMED_TEMPLATES
from hearthd.text.templates.chat_template import BadChatTemplate, ChatTemplate
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tokenizers import Tokenizer as Library

    from hearthd.baker.weights.source import WeightSource

_CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
# The files of a Hugging Face folder that decide about its tokenizer.
FOLDER_FILES = (
    TOKENIZER, *TEMPLATE_FILES, _CONFIG, GENERATION_CONFIG, *VOCABULARY_FILES,
)  # fmt: skip

# Instruct models end a turn with one of these, even if the file does not list it as eos.
_TURN_ENDS = (
    "<end_of_turn>", "<turn|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_utterance>",
    "<|eom_id|>", "<|tool_response>", "<|return|>", "<|call|>",
)  # fmt: skip
# <|end|> ends a turn, but only a message of it where the template has <|return|> (gpt-oss).
_MESSAGE_END, _TURN_END = "<|end|>", "<|return|>"
# Ends a document and therefore an answer, as in llama.cpp.
_TEXT_END = "<|endoftext|>"
# End a text that fills a gap, as in llama.cpp: padding, or the next file or repository.
_GAP_ENDS = (
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
    "<reponame>", "<|file_sep|>",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SourceTokenizer:
    """The tokenizer of weights, as a server reads it.

    text      tokenizer.json
    template  the chat template (Jinja), or None if the weights have none
    library   the library's object for the text, if it was read already
    """

    text: str
    special: SpecialTokens
    template: str | None
    library: Library | None = None

    @cached_property
    def tokenizer(self) -> Library:
        """The library's object."""
        return self.library or reader.build(reader.parse(self.text))

    @property
    def bos(self) -> int | None:
        """The id of the token that starts a prompt."""
        return self.special.bos


def read_tokenizer(source: WeightSource, *, vocab_size: int) -> SourceTokenizer:
    """The tokenizer of a language model with `vocab_size` ids, checked as far as reading can.

    Raises TokenizerError or another WeightsError.
    """
    text = tokenizer_json(source)
    library, template = _library(source, text), chat_template(source)
    special = _special_tokens(source, library, template or "")
    for token in (special.bos, special.template_bos, *special.eos):
        if token is not None and token >= vocab_size:
            raise TokenizerError(
                f"{path_of(source)}: special token {token}: expected one of the model's "
                f"{vocab_size}"
            )
    for ids in prompt_ids(library):
        if not ids or max(ids) >= vocab_size:
            raise TokenizerError(
                f"{_file(source)}: the tokenizer reads English as the tokens {ids!r:.80}, expected "
                f"some of the model's {vocab_size}; use the tokenizer of these weights"
            )
    if template is not None:
        _check_template(source, template, Tokenizer(library, bos=special.bos))
    return SourceTokenizer(text=text, special=special, template=template, library=library)


def tokenizer_json(source: WeightSource) -> str:
    """The text of tokenizer.json for answers, without merges that can never happen.

    Raises TokenizerError or another WeightsError.
    """
    if source.folder is None:
        with _naming(source):
            return convert(source.metadata()).to_str()
    text = _read_tokenizer_json(source.folder)
    fields = _parsed(source, text)
    try:
        answers = reader.for_answers(fields)
    except reader.InvalidTokenizer as error:
        raise TokenizerError(f"{_file(source)}: {error}") from error
    if answers != fields:
        text = json.dumps(answers, ensure_ascii=False)
    return drop_unused_merges(text)


def text_tokenizer_json(source: WeightSource) -> str:
    """As `tokenizer_json`, for whole texts: no token is cut off or added as padding."""
    if source.folder is None:
        with _naming(source):
            text = convert(source.metadata(), whole_texts=True).to_str()
    else:
        fields = _parsed(source, _read_tokenizer_json(source.folder))
        text = json.dumps(reader.for_whole_texts(fields), ensure_ascii=False)
    _library(source, text)
    return text


def answer_tokenizer(source: WeightSource) -> Library:
    """The library's object for `tokenizer_json`; raises TokenizerError or another WeightsError."""
    return _library(source, tokenizer_json(source))


def special_tokens(source: WeightSource) -> SpecialTokens:
    """The ids of the token that starts a prompt and of those that end an answer.

    Raises TokenizerError or another WeightsError.
    """
    library = answer_tokenizer(source)
    return _special_tokens(source, library, chat_template(source) or "")


def chat_template(source: WeightSource) -> str | None:
    """The chat template (Jinja), or None if the weights have none."""
    if source.folder is not None:
        return folder_template(source.folder)
    template = source.metadata().get("tokenizer.chat_template")
    # Older files of RWKV have the name that llama.cpp knows its template by.
    return NAMED_TEMPLATES.get(template, template) if isinstance(template, str) else None


def _special_tokens(source: WeightSource, library: Library, template: str) -> SpecialTokens:
    """An answer also ends with the token that ends turns in the template, and at other texts."""
    id_of = library.get_vocab()
    if source.folder is not None:
        named, eos = _folder_specials(source.folder, id_of)
    else:
        with _naming(source):
            specials = gguf_specials(source.metadata())
        named, eos = specials.named_bos, specials.eos
    ends = [token for token in _TURN_ENDS if token in template] + [_TEXT_END, *_GAP_ENDS]
    eos = [*eos, *(id_of[token] for token in ends if token in id_of)]
    if _TURN_END in template:
        eos = [token for token in eos if token != id_of.get(_MESSAGE_END)]
    if not eos:
        raise TokenizerError(
            f"{path_of(source)}: the weights have no eos token, so that no answer could end"
        )
    known = set(id_of.values())
    for token in eos:
        if token not in known:
            raise TokenizerError(
                f"{path_of(source)}: special token {token} is outside the vocabulary of "
                f"{max(known, default=-1) + 1}"
            )
    bos = _first_token(source, library)
    return SpecialTokens(
        bos=bos,
        eos=tuple(dict.fromkeys(eos)),
        template_bos=named if named != bos and "bos_token" in template else None,
    )


def _first_token(source: WeightSource, library: Library) -> int | None:
    """The token that the tokenizer puts in front of a text, as in `transformers`."""
    encoding = library.encode("a")
    parts = zip(encoding.ids, encoding.sequence_ids, strict=True)
    first = [token for token, _ in itertools.takewhile(lambda part: part[1] is None, parts)]
    if len(first) > 1 and len(first) < len(encoding.ids):
        raise TokenizerError(
            f"{_file(source)}: post_processor puts the tokens {first!r:.80} in front of a text, "
            "expected at most one"
        )
    return first[0] if first else None


def _library(source: WeightSource, text: str) -> Library:
    """The library's object for the text of a tokenizer.json, read as a server reads it."""
    try:
        return reader.build(_parsed(source, text))
    except reader.InvalidTokenizer as error:
        raise TokenizerError(f"{_file(source)} is not a valid tokenizer: {error}") from error


def _parsed(source: WeightSource, text: str) -> dict[str, Any]:
    try:
        return reader.parse(text)
    except reader.InvalidTokenizer as error:
        start = text[:HEAD_BYTES].encode()
        known = None if start.lstrip().startswith(b"{") else other_format(start)
        raise TokenizerError(
            f"{_file(source)} is not a valid tokenizer: {known or error}"
        ) from error


def _check_template(source: WeightSource, template: str, tokenizer: Tokenizer) -> None:
    try:
        ChatTemplate(template, tokenizer, eos=None)
    except BadChatTemplate as error:
        remedy = (
            "correct it in the file, or remove it"
            if source.folder is not None
            else "write another with `gguf-new-metadata --chat-template-file` of the package gguf"
        )
        raise TokenizerError(f"{path_of(source)}: {error}; {remedy}") from error


def _file(source: WeightSource) -> Path:
    """The file that has the vocabulary, or the folder if it is in several older ones."""
    if source.folder is not None and (source.folder / TOKENIZER).is_file():
        return source.folder / TOKENIZER
    return path_of(source)


@contextlib.contextmanager
def _naming(source: WeightSource) -> Iterator[None]:
    """Name the GGUF file in errors of the block, which name the key."""
    try:
        yield
    except TokenizerError as error:
        raise TokenizerError(f"{path_of(source)}: {error}") from error


# Hugging Face folders


def require_tokenizer(folder: Path | None) -> None:
    """Raise TokenizerError if the folder of weights has no tokenizer. A GGUF file has none."""
    if folder is not None and not ((folder / TOKENIZER).is_file() or has_vocabulary(folder)):
        raise TokenizerError(
            f"{folder} has no {TOKENIZER}; download it with the weights, or write it with "
            f"transformers: AutoTokenizer.from_pretrained({str(folder)!r})"
            f".save_pretrained({str(folder)!r})"
        )


def _read_tokenizer_json(folder: Path) -> str:
    require_tokenizer(folder)
    path = folder / TOKENIZER
    if not path.is_file():
        return folder_tokenizer(folder).to_str()
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        raise TokenizerError(f"cannot read {path}: {reason(error)}") from error


def _folder_specials(folder: Path, id_of: Mapping[str, int]) -> tuple[int | None, list[int]]:
    """The token that templates call bos_token, by its name, and those that end an answer.

    The latter come from generation_config.json, else config.json, else tokenizer_config.json.
    """
    tokenizer_config = read_optional(folder / TOKENIZER_CONFIG)
    config = read_json(folder / _CONFIG)
    files = [read_optional(folder / GENERATION_CONFIG), config, config.get("text_config")]
    ids = (_ids(file.get("eos_token_id")) for file in files if isinstance(file, dict))
    eos = next(filter(None, ids), _ids_by_name(tokenizer_config.get("eos_token"), id_of))
    if (folder / RWKV_VOCABULARY).exists():
        eos = [*eos, *turn_end(id_of)]
    bos = _ids_by_name(tokenizer_config.get("bos_token"), id_of)
    return (bos[0] if bos else None), eos


def _ids(value: Any) -> list[int]:
    ids = value if isinstance(value, list) else [value]
    return [token for token in ids if type(token) is int]


def _ids_by_name(value: Any, id_of: Mapping[str, int]) -> list[int]:
    content = value.get("content") if isinstance(value, dict) else value
    return [id_of[content]] if isinstance(content, str) and content in id_of else []
