"""The tokenizer, chat template and special tokens that came with the weights.

A Hugging Face folder has a tokenizer.json. A GGUF file has the vocabulary of a SentencePiece BPE
model, without its merges: here they are found again, and the whole becomes the tokenizer.json
that the `tokenizers` library reads. Knows vocabularies, not architectures.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeVar

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from baker.weights.safetensors import SafetensorsSource, read_json
from baker.weights.source import WeightsError
from models.bundle import SpecialTokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from baker.weights.source import WeightSource

T = TypeVar("T")

# GGUF's token types (llama.cpp's names).
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
# SentencePiece's sign for a space.
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
# Gemma's instruct models end a turn with it, whether or not the file counts it as an eos.
_END_OF_TURN = "<end_of_turn>"


class TokenizerError(WeightsError):
    """The weights' tokenizer is missing, broken or of a kind that is not converted."""


def tokenizer_json(source: WeightSource) -> str:
    """The text of a tokenizer.json. Raises TokenizerError or another WeightsError."""
    if isinstance(source, SafetensorsSource):
        return _read_tokenizer_json(source.folder)
    return _convert(source.metadata()).to_str()


def chat_template(source: WeightSource) -> str | None:
    """The chat template (Jinja), or None when the weights came without one."""
    if isinstance(source, SafetensorsSource):
        return _read_chat_template(source.folder)
    template = source.metadata().get("tokenizer.chat_template")
    return template if isinstance(template, str) else None


def special_tokens(source: WeightSource) -> SpecialTokens:
    """The ids of the token in front and of those that end an answer.

    Where the chat template ends turns with <end_of_turn>, that token is an eos too.
    Raises TokenizerError or another WeightsError.
    """
    if isinstance(source, SafetensorsSource):
        bos, eos, id_of = _folder_specials(source.folder)
    else:
        bos, eos, id_of = _gguf_specials(source.metadata())
    if _END_OF_TURN in (chat_template(source) or "") and _END_OF_TURN in id_of:
        eos = [*eos, id_of[_END_OF_TURN]]
    if not eos:
        raise TokenizerError("the weights name no eos token: no answer could end")
    size = max(id_of.values()) + 1
    for token in [*eos, *([] if bos is None else [bos])]:
        if not 0 <= token < size:
            raise TokenizerError(f"special token {token} is outside the vocabulary of {size}")
    return SpecialTokens(bos=bos, eos=tuple(dict.fromkeys(eos)))


# GGUF


def _convert(metadata: Mapping[str, object]) -> Tokenizer:
    """A SentencePiece BPE vocabulary as a `tokenizers` BPE with byte fallback."""
    _require_convertible(metadata)
    tokens, types, scores = _vocabulary(metadata)
    id_of = {token: i for i, token in enumerate(tokens)}
    if len(id_of) != len(tokens):
        twice = next(token for i, token in enumerate(tokens) if id_of[token] != i)
        raise TokenizerError(f"tokenizer.ggml.tokens has {twice!r} twice")
    unknown = tokens[_id(metadata, "unknown", len(tokens))]

    tokenizer = Tokenizer(
        BPE(
            vocab=id_of,
            merges=_merges(tokens, types, scores, id_of),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_tokens(
        [
            AddedToken(token, special=kind != _USER_DEFINED, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ]
    )
    if _value(metadata, "add_bos_token", bool):
        bos_id = _id(metadata, "bos", len(tokens))
        bos = tokens[bos_id]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, bos_id)]
        )
    return tokenizer


def _require_convertible(metadata: Mapping[str, object]) -> None:
    """Refuse what the conversion does not do, rather than give other ids than the model's."""
    model = _value(metadata, "model", str)
    if model != "llama":
        raise TokenizerError(
            f"tokenizer.ggml.model is {model!r}, only 'llama' (SentencePiece BPE) is converted: "
            "use the Hugging Face folder of the model"
        )
    # Absent means true to llama.cpp.
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        raise TokenizerError("tokenizer.ggml.add_space_prefix is not false: not converted")
    if metadata.get("tokenizer.ggml.add_eos_token", False):
        raise TokenizerError("tokenizer.ggml.add_eos_token is true: not converted")


def _vocabulary(metadata: Mapping[str, object]) -> tuple[list[str], list[int], list[float]]:
    """Each id's token, type and score; a space of a user-defined token becomes its sign."""
    tokens = _value(metadata, "tokens", list)
    types = _value(metadata, "token_type", list)
    scores = _value(metadata, "scores", list)
    if not len(tokens) == len(types) == len(scores):
        raise TokenizerError(
            f"the vocabulary has {len(tokens)} tokens, {len(types)} types, {len(scores)} scores"
        )
    texts = [
        token.replace(" ", _SPACE) if kind == _USER_DEFINED else token
        for token, kind in zip(tokens, types, strict=True)
    ]
    return texts, types, scores


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


def _gguf_specials(
    metadata: Mapping[str, object],
) -> tuple[int | None, list[int], dict[str, int]]:
    tokens = _value(metadata, "tokens", list)
    bos = _id(metadata, "bos", len(tokens)) if _value(metadata, "add_bos_token", bool) else None
    eos = [
        _id(metadata, name, len(tokens))
        for name in ("eos", "eot")
        if f"tokenizer.ggml.{name}_token_id" in metadata
    ]
    return bos, eos, {token: i for i, token in enumerate(tokens)}


def _id(metadata: Mapping[str, object], name: str, size: int) -> int:
    token = _value(metadata, f"{name}_token_id", int)
    if not 0 <= token < size:
        raise TokenizerError(f"tokenizer.ggml.{name}_token_id is {token} of {size} tokens")
    return token


def _value(metadata: Mapping[str, object], name: str, kind: type[T]) -> T:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, kind):
        raise TokenizerError(
            f"tokenizer.ggml.{name} is {value!r:.80}, wanted a value of type {kind.__name__}"
        )
    return value


# Hugging Face folders


def _read_tokenizer_json(folder: Path) -> str:
    path = folder / "tokenizer.json"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TokenizerError(f"cannot read {path}: {error}") from error
    _load(path, text)
    return text


def _load(path: Path, text: str) -> Tokenizer:
    try:
        return Tokenizer.from_str(text)
    # The library raises plain Exception.
    except Exception as error:
        raise TokenizerError(f"{path} is not a tokenizer.json: {error}") from error


def _read_chat_template(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    template = _read_optional(folder / "tokenizer_config.json").get("chat_template")
    # Some models have several, by name.
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template if isinstance(template, str) else None


def _folder_specials(folder: Path) -> tuple[int | None, list[int], dict[str, int]]:
    """What generation_config.json says, else config.json, else tokenizer_config.json by name."""
    tokenizer_config = _read_optional(folder / "tokenizer_config.json")
    id_of = _load(folder / "tokenizer.json", _read_tokenizer_json(folder)).get_vocab()
    config = read_json(folder / "config.json")
    files = [_read_optional(folder / "generation_config.json"), config, config.get("text_config")]
    bos, eos = (
        next(
            (ids for file in files if file and (ids := _ids(file.get(f"{name}_token_id")))),
            _ids_by_name(tokenizer_config.get(f"{name}_token"), id_of),
        )
        for name in ("bos", "eos")
    )
    in_front = bos[0] if bos and tokenizer_config.get("add_bos_token", True) else None
    return in_front, eos, id_of


def _ids(value: Any) -> list[int]:
    ids = value if isinstance(value, list) else [value]
    return [token for token in ids if isinstance(token, int)]


def _ids_by_name(value: Any, id_of: Mapping[str, int]) -> list[int]:
    content = value.get("content") if isinstance(value, dict) else value
    return [id_of[content]] if isinstance(content, str) and content in id_of else []


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
