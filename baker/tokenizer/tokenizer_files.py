"""The tokenizer, chat template and special tokens of weights.

A Hugging Face folder has a tokenizer.json; the vocabulary of a GGUF file is converted to one
(gguf_vocabulary.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from baker.tokenizer.gguf_vocabulary import Specials, convert, gguf_specials
from baker.tokenizer.unused_merges import drop_unused_merges
from baker.weights.safetensors import read_json
from baker.weights.source import TokenizerError, read_text
from models.bundle import SpecialTokens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from baker.weights.source import WeightSource

# Instruct models end a turn with one of these, even if the file does not list it as eos.
_TURN_ENDS = ("<end_of_turn>", "<turn|>", "<|im_end|>", "<|eot_id|>", "<|end|>")
# Ends a document and therefore an answer, as in llama.cpp.
_TEXT_END = "<|endoftext|>"


@dataclass(frozen=True)
class SourceTokenizer:
    """The tokenizer of weights. It is converted once, when it is first needed."""

    source: WeightSource

    @cached_property
    def text(self) -> str:
        """As `tokenizer_json`."""
        return tokenizer_json(self.source)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The library's object for it; raises a WeightsError."""
        return Tokenizer.from_str(self.text)

    @cached_property
    def bos(self) -> int | None:
        """The id of the token that starts a prompt; raises a WeightsError."""
        return special_tokens(self.source).bos


def tokenizer_json(source: WeightSource) -> str:
    """The text of tokenizer.json, without merges that can never happen.

    Raises TokenizerError or another WeightsError.
    """
    if source.folder is not None:
        return drop_unused_merges(_read_tokenizer_json(source.folder))
    return convert(source.metadata()).to_str()


def text_tokenizer_json(source: WeightSource) -> str:
    """As `tokenizer_json`, for whole texts: no token is cut off or added as padding."""
    if source.folder is None:
        return convert(source.metadata(), whole_texts=True).to_str()
    whole = json.loads(_read_tokenizer_json(source.folder))
    return json.dumps(whole | {"truncation": None, "padding": None}, ensure_ascii=False)


def chat_template(source: WeightSource) -> str | None:
    """The chat template (Jinja), or None if the weights have none."""
    if source.folder is not None:
        return _read_chat_template(source.folder)
    template = source.metadata().get("tokenizer.chat_template")
    return template if isinstance(template, str) else None


def special_tokens(source: WeightSource) -> SpecialTokens:
    """The ids of the token that starts a prompt and of those that end an answer.

    An answer also ends with <|endoftext|> and with the token that ends turns in the chat template.
    Raises TokenizerError or another WeightsError.
    """
    specials = (
        _folder_specials(source.folder)
        if source.folder is not None
        else gguf_specials(source.metadata())
    )
    template = chat_template(source) or ""
    ends = [token for token in _TURN_ENDS if token in template] + [_TEXT_END]
    eos = [*specials.eos, *(specials.id_of[token] for token in ends if token in specials.id_of)]
    if not eos:
        raise TokenizerError("the weights have no eos token, so that no answer could end")
    size = max(specials.id_of.values(), default=-1) + 1
    for token in [*eos, *([] if specials.bos is None else [specials.bos])]:
        if not 0 <= token < size:
            raise TokenizerError(f"special token {token} is outside the vocabulary of {size}")
    return SpecialTokens(bos=specials.bos, eos=tuple(dict.fromkeys(eos)))


# Hugging Face folders


def _read_tokenizer_json(folder: Path) -> str:
    path = folder / "tokenizer.json"
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise TokenizerError(f"cannot read {path}: {error}") from error
    _load(path, text)
    return _without_strip(text)


def _without_strip(text: str) -> str:
    """The text of a tokenizer.json whose decoder keeps the space in front of a first word.

    Answers are decoded in pieces, of which each would lose its first space.
    """
    whole = json.loads(text)
    decoder = whole.get("decoder") or {}
    if not any(part.get("type") == "Strip" for part in decoder.get("decoders", [])):
        return text
    decoder["decoders"] = [part for part in decoder["decoders"] if part.get("type") != "Strip"]
    return json.dumps(whole, ensure_ascii=False)


def _load(path: Path, text: str) -> Tokenizer:
    try:
        return Tokenizer.from_str(text)
    # The library raises plain Exception, and its panics are BaseException.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise TokenizerError(f"{path} is not a tokenizer.json: {error}") from error


def _read_chat_template(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return read_text(path)
        except (OSError, ValueError) as error:
            raise TokenizerError(f"cannot read {path}: {error}") from error
    template = _read_optional(folder / "tokenizer_config.json").get("chat_template")
    # Some models have several templates, by name.
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict)]
        default = (entry for entry in named if entry.get("name") == "default")
        template = next(default, {}).get("template")
    return template if isinstance(template, str) else None


def _folder_specials(folder: Path) -> Specials:
    """From generation_config.json, else config.json, else by name from tokenizer_config.json."""
    tokenizer_config = _read_optional(folder / "tokenizer_config.json")
    id_of = _load(folder / "tokenizer.json", _read_tokenizer_json(folder)).get_vocab()
    config = read_json(folder / "config.json")
    files = [_read_optional(folder / "generation_config.json"), config, config.get("text_config")]
    bos, eos = (
        next(
            (
                ids
                for file in files
                if isinstance(file, dict) and (ids := _ids(file.get(f"{name}_token_id")))
            ),
            _ids_by_name(tokenizer_config.get(f"{name}_token"), id_of),
        )
        for name in ("bos", "eos")
    )
    first = bos[0] if bos and tokenizer_config.get("add_bos_token", True) else None
    return Specials(first, eos, id_of)


def _ids(value: Any) -> list[int]:
    ids = value if isinstance(value, list) else [value]
    return [token for token in ids if type(token) is int]


def _ids_by_name(value: Any, id_of: Mapping[str, int]) -> list[int]:
    content = value.get("content") if isinstance(value, dict) else value
    return [id_of[content]] if isinstance(content, str) and content in id_of else []


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
