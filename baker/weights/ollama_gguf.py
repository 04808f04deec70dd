"""GGUF files that Ollama's converter wrote, read as llama.cpp's converter writes them.

They hold towers beside the text model, and some keys and tensors under other names. Source: Ollama,
convert/ and llama/compat/llama-ollama-compat.cpp, which translates the files of its library.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import override

from hearthd.baker.weights.source import BadFile
from hearthd.baker.weights.source_in_front import SourceInFront

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock, WeightSource

# Towers and projectors, and layers that predict further tokens.
_HIDDEN = ("a.", "mm.", "model.vision_tower.", "mtp.", "v.")
# Keys of towers, and keys whose values follow from others.
_DROPPED = frozenset(
    "attention.head_dim image_token_id image_token_index mrope_sections rope.mrope_interleaved "
    "rope.mrope_section spatial_merge_size vision_end_token_id vision_start_token_id".split()
)
_REORDERED = "ssm.v_head_reordered"
_BY_TOKEN = ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type")
_PRE, _MODEL = "tokenizer.ggml.pre", "tokenizer.ggml.model"
_TABLE = "token_embd.weight"
# Gemma 3 extends its context by a factor of 8, except the sizes with 32,768 positions.
_EXTENDED = 131_072
_GEMMA_TEMPLATE = (
    "{{ bos_token }}{% set system = namespace(text='') %}{% for message in messages %}"
    "{% set text = message['content'] | trim %}"
    "{% if message['role'] == 'system' %}{% set system.text = text + '\\n\\n' %}{% else %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\\n' + system.text + text + '<end_of_turn>\\n' }}"
    "{% set system.text = '' %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
# Keys of the vocabulary that only Ollama's converter writes.
_OF_VOCABULARY = ("tokenizer.ggml.add_padding_token", "tokenizer.ggml.add_unknown_token")


@dataclass(frozen=True, kw_only=True)
class _Translation:
    """How files of an architecture differ from llama.cpp's converter's.

    architecture  its name in llama.cpp, None: the same
    keys          names of keys in llama.cpp, without the architecture
    missing       values of keys that the files leave out
    tokenizer     values of keys about the vocabulary that replace the files' values
    tensors       parts of the names of tensors, and the same parts in llama.cpp
    """

    architecture: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, object] = field(default_factory=dict)
    tokenizer: Mapping[str, object] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)


_QWEN = _Translation(tensors={".ssm_dt": ".ssm_dt.bias"})
_TRANSLATIONS: Mapping[str, _Translation] = {
    "gemma3": _Translation(
        keys={
            "rope.global.freq_base": "rope.freq_base",
            "rope.local.freq_base": "rope.freq_base_swa",
        },
        missing={
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e6,
            "rope.freq_base_swa": 1e4,
        },
    ),
    "gemma4": _Translation(
        tensors={".ffn_gate_inp.per_expert_scale": ".ffn_down_exps.scale"},
    ),
    "gptoss": _Translation(
        architecture="gpt-oss",
        missing={"rope.scaling.type": "yarn"},
        tokenizer={_PRE: "gpt-4o"},
        tensors={
            ".attn_out.": ".attn_output.",
            ".attn_sinks": ".attn_sinks.weight",
            ".ffn_norm.": ".post_attention_norm.",
        },
    ),
    "lfm2": _Translation(tokenizer={_PRE: "lfm2"}),
    "mistral3": _Translation(
        keys={
            "rope.scaling.beta_fast": "rope.scaling.yarn_beta_fast",
            "rope.scaling.beta_slow": "rope.scaling.yarn_beta_slow",
            "rope.scaling.mscale_all_dim": "rope.scaling.yarn_log_multiplier",
            "rope.scaling_beta": "attention.temperature_scale",
        }
    ),
    "olmo3": _Translation(architecture="olmo2"),
    "qwen35": _QWEN,
    "qwen35moe": _QWEN,
    "qwen3moe": _Translation(keys={"norm_top_k_prob": "expert_weights_norm"}),
}


def as_llama_cpp_writes(source: WeightSource) -> WeightSource:
    """A file of Ollama by the names of llama.cpp; another file as it is.

    Raises BadFile for a file whose layout is not known.
    """
    metadata = dict(source.metadata())
    architecture = str(metadata.get("general.architecture"))
    translation = _TRANSLATIONS.get(architecture, _Translation())
    names = _names(source, architecture, translation)
    if not _is_of_ollama(metadata, architecture, translation, len(source.names()), names):
        return source
    return _Translated(source, _translated(source, metadata, translation, names), names)


def _is_of_ollama(
    metadata: Mapping[str, Any],
    architecture: str,
    translation: _Translation,
    tensors: int,
    names: Mapping[str, str],
) -> bool:
    others = (*_DROPPED, *translation.keys, _REORDERED)
    keys = {f"{architecture}.{key}" for key in others} | {*_OF_VOCABULARY}
    return (
        translation.architecture is not None
        or len(names) < tensors
        or any(name != stored for name, stored in names.items())
        or not keys.isdisjoint(metadata)
    )


class _Translated(SourceInFront):
    """Tensors and keys under other names."""

    def __init__(
        self, base: WeightSource, metadata: Mapping[str, object], names: Mapping[str, str]
    ) -> None:
        super().__init__(base)
        self._metadata, self._stored = metadata, names

    @override
    def metadata(self) -> Mapping[str, object]:
        return self._metadata

    @override
    def names(self) -> tuple[str, ...]:
        return tuple(self._stored)

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        return self._base.shape(self._stored.get(name, name))

    @override
    def dtype(self, name: str) -> str:
        return self._base.dtype(self._stored.get(name, name))

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        return self._base.blocks(self._stored.get(name, name))

    @override
    def integer_storage(self, name: str) -> str | None:
        return self._base.integer_storage(self._stored.get(name, name))

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        return self._base.integer_blocks(self._stored.get(name, name))


def _names(source: WeightSource, architecture: str, translation: _Translation) -> dict[str, str]:
    """The names in the file of the tensors of the text model, by those in llama.cpp."""
    stored = [name for name in source.names() if not name.startswith(_HIDDEN)]
    parts = dict(translation.tensors)
    if architecture == "lfm2" and "token_embd_norm.weight" not in stored:
        parts["output_norm.weight"] = "token_embd_norm.weight"
    if _embeds(architecture, stored):
        parts |= {"dense.0.": "dense_2.", "dense.1.": "dense_3."}
        parts["norm.weight"] = "output_norm.weight"
    return {_renamed(name, parts): name for name in stored}


def _renamed(name: str, parts: Mapping[str, str]) -> str:
    """A part that is a whole name, or ends one, is replaced there only."""
    for part, other in parts.items():
        if part.startswith(".") and part.endswith("."):
            name = name.replace(part, other)
        elif name == part or (part.startswith(".") and name.endswith(part)):
            name = name.removesuffix(part) + other
        elif part.endswith(".") and name.startswith(part):
            name = other + name.removeprefix(part)
    return name


def _embeds(architecture: str, names: Collection[str]) -> bool:
    """Whether a file of Gemma 3 is EmbeddingGemma."""
    return architecture == "gemma3" and "dense.0.weight" in names


def _translated(
    source: WeightSource,
    metadata: Mapping[str, Any],
    translation: _Translation,
    names: Mapping[str, str],
) -> dict[str, Any]:
    """The keys as llama.cpp's converter writes them; raises BadFile."""
    architecture = str(metadata["general.architecture"])
    known = translation.architecture or architecture
    if _embeds(architecture, names.values()):
        known = "gemma-embedding"
    keys: dict[str, Any] = {}
    for key, value in metadata.items():
        start, _, rest = key.partition(".")
        if start != architecture:
            keys[key] = value
        elif rest not in _DROPPED:
            keys[f"{known}.{translation.keys.get(rest, rest)}"] = value
    keys["general.architecture"] = known
    for rest, value in translation.missing.items():
        keys.setdefault(f"{known}.{rest}", value)
    shapes = {name: source.shape(stored) for name, stored in names.items()}
    if known in _OF_ARCHITECTURE:
        _OF_ARCHITECTURE[known](keys, shapes)
    tokens = shapes[_TABLE][0] if _TABLE in shapes else None  # fewer than the vocabulary may have
    keys |= {key: keys[key][:tokens] for key in _BY_TOKEN if key in keys}
    return keys | {key: value for key, value in translation.tokenizer.items() if key in keys}


_Shapes: TypeAlias = "Mapping[str, tuple[int, ...]]"


def _gemma3(keys: dict[str, Any], _: _Shapes) -> None:
    if keys.get("gemma3.context_length", 0) >= _EXTENDED:
        keys.setdefault("gemma3.rope.scaling.type", "linear")
        keys.setdefault("gemma3.rope.scaling.factor", 8.0)
    keys.setdefault("tokenizer.chat_template", _GEMMA_TEMPLATE)


def _gemma_embedding(keys: dict[str, Any], shapes: _Shapes) -> None:
    for key in ("attention.causal", "attention.sliding_window_pattern"):
        keys.pop(f"gemma-embedding.{key}", None)
    for name in ("dense_2", "dense_3"):
        outputs, inputs = shapes[f"{name}.weight"]
        keys[f"gemma-embedding.{name}_feat_in"] = inputs
        keys[f"gemma-embedding.{name}_feat_out"] = outputs


def _gemma4(keys: dict[str, Any], _: _Shapes) -> None:
    if keys.get(_MODEL) == "llama":
        keys[_MODEL] = "gemma4"


def _rows(shapes: _Shapes, name: str) -> int:
    if name not in shapes:
        raise BadFile(f"the file has no tensor {name}; pull the model again")
    return shapes[name][-2]


def _gpt_oss(keys: dict[str, Any], shapes: _Shapes) -> None:
    keys.setdefault(
        "gpt-oss.expert_feed_forward_length", _rows(shapes, "blk.0.ffn_gate_exps.weight")
    )


def _lfm2(keys: dict[str, Any], shapes: _Shapes) -> None:
    keys["lfm2.feed_forward_length"] = _rows(shapes, "blk.0.ffn_gate.weight")


def _mistral3(keys: dict[str, Any], _: _Shapes) -> None:
    if keys.get(_PRE) in (None, "", "default"):
        keys[_PRE] = "tekken"


def _qwen35(keys: dict[str, Any], _: _Shapes) -> None:
    architecture = keys["general.architecture"]
    heads = keys.get(f"{architecture}.attention.head_count_kv")
    if isinstance(heads, list):  # 0 in recurrent layers
        keys[f"{architecture}.attention.head_count_kv"] = max(heads)
    if not keys.pop(f"{architecture}.{_REORDERED}", True):
        raise BadFile(
            f"{architecture}.{_REORDERED} is False, supported is True; pull the model again"
        )


# Keys that follow from the shapes of tensors, or from other keys.
_OF_ARCHITECTURE: Mapping[str, Callable[[dict[str, Any], _Shapes], None]] = {
    "gemma-embedding": _gemma_embedding,
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "gpt-oss": _gpt_oss,
    "lfm2": _lfm2,
    "mistral3": _mistral3,
    "qwen35": _qwen35,
    "qwen35moe": _qwen35,
}
