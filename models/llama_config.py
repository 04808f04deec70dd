"""Llama's configuration: from Hugging Face's config.json, from GGUF metadata, or a preset.

A key that is not known here is refused by name: it may change what the model computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.config import (
    ConfigError,
    ModelConfig,
    gguf_keys,
    refuse_other_values,
    refuse_unknown,
    require,
    require_kinds,
    required_float,
    vocabulary_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """The shape of a model of the Llama family.

    rope_factor  divides the rotary frequencies (linear scaling)
    tied         whether the embedding table is also the output head
    """

    rope_base: float
    rope_factor: float = 1.0
    tied: bool


PRESETS: Mapping[str, Config] = {
    "smollm2-135m": Config(
        layers=30, hidden=576, ffn=1536, heads=9, kv_heads=3, head_dim=64, max_context=8192,
        vocab_size=49152, norm_eps=1e-5, rope_base=100_000.0, tied=True,
    ),
}  # fmt: skip

# --- Hugging Face

# LlamaConfig's own defaults: files leave out what equals them.
_HUGGING_FACE_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
}
# Keys that would change what is computed, with the only value that is computed here.
_HUGGING_FACE_FIXED: Mapping[str, Any] = {
    "attention_bias": False,
    "hidden_act": "silu",
    "mlp_bias": False,
    "rope_interleaved": False,
}
# Keys that change nothing for inference, or that other files are the source of.
_HUGGING_FACE_IGNORED = frozenset(
    "_name_or_path architectures attention_dropout bos_token_id dtype eos_token_id "
    "initializer_range is_llama_config model_type pad_token_id pretraining_tp torch_dtype "
    "transformers.js_config transformers_version use_cache".split()
)


def from_hugging_face(data: Mapping[str, Any]) -> Config:
    """Read a config.json; raises ConfigError, naming the key that is unknown or unsupported."""
    if data.get("model_type") != "llama":
        raise ConfigError(f"model_type: expected llama, got {data.get('model_type')!r}")
    known = {*_HUGGING_FACE_DEFAULTS, *_HUGGING_FACE_FIXED, *_HUGGING_FACE_IGNORED}
    refuse_unknown(data, known | {"rope_parameters"}, "config.json")
    refuse_other_values(data, _HUGGING_FACE_FIXED)
    get = {**_HUGGING_FACE_DEFAULTS, **_rope_keys(data), **data}
    require_kinds(get, _HUGGING_FACE_DEFAULTS)
    heads, hidden = get["num_attention_heads"], get["hidden_size"]
    return Config(
        layers=get["num_hidden_layers"],
        hidden=hidden,
        ffn=get["intermediate_size"],
        heads=heads,
        kv_heads=get["num_key_value_heads"] or heads,
        head_dim=get["head_dim"] or hidden // heads,
        max_context=get["max_position_embeddings"],
        vocab_size=get["vocab_size"],
        norm_eps=float(get["rms_norm_eps"]),
        rope_base=float(get["rope_theta"]),
        rope_factor=_linear_factor(get["rope_scaling"]),
        tied=get["tie_word_embeddings"],
    )


def _rope_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    """Newer files keep the rotary settings in one place; say them with the older keys."""
    if "rope_parameters" not in data:
        return {}
    rope = data["rope_parameters"]
    require(rope, dict, "config.json: rope_parameters")
    theta = required_float(rope, "rope_theta", "rope_parameters")
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    return {"rope_theta": theta, "rope_scaling": scaling}


def _linear_factor(scaling: Mapping[str, Any] | None) -> float:
    if scaling is None:
        return 1.0
    require(scaling, dict, "config.json: rope_scaling")
    rope_type = scaling.get("rope_type", scaling.get("type", "default"))
    if rope_type not in ("default", "linear"):
        raise ConfigError(f"rope_scaling: type {rope_type!r}, supported are linear and default")
    refuse_unknown(scaling, {"rope_type", "type", "factor"}, "rope_scaling")
    if rope_type == "default":
        return 1.0
    return required_float(scaling, "factor", "rope_scaling")


# --- GGUF

_GGUF_REQUIRED = frozenset(
    "block_count context_length embedding_length feed_forward_length attention.head_count "
    "attention.head_count_kv attention.layer_norm_rms_epsilon".split()
)
_GGUF_OPTIONAL = frozenset(
    "attention.key_length attention.value_length rope.dimension_count rope.freq_base "
    "rope.scaling.type rope.scaling.factor vocab_size".split()
)


def from_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> Config:
    """Read GGUF metadata and the shapes of the file's tensors.

    Raises ConfigError, naming the key that is missing, unknown or unsupported.
    """
    values = gguf_keys(metadata, "llama", _GGUF_REQUIRED, _GGUF_OPTIONAL)
    if "rope_freqs.weight" in tensors:
        raise ConfigError("rope_freqs.weight: rotary scaling of the type llama3 is unsupported")
    heads, hidden = values["attention.head_count"], values["embedding_length"]
    head_dim = values.get("attention.key_length", hidden // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if values.get(key, head_dim) != head_dim:
            raise ConfigError(f"llama.{key} is {values[key]}, supported is key_length, {head_dim}")
    scaling = values.get("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ConfigError(f"llama.rope.scaling.type: {scaling!r}, supported is linear")
    return Config(
        layers=values["block_count"],
        hidden=hidden,
        ffn=values["feed_forward_length"],
        heads=heads,
        kv_heads=values["attention.head_count_kv"],
        head_dim=head_dim,
        max_context=values["context_length"],
        vocab_size=vocabulary_rows(tensors),
        norm_eps=values["attention.layer_norm_rms_epsilon"],
        rope_base=values.get("rope.freq_base", 10_000.0),
        rope_factor=values.get("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0,
        tied="output.weight" not in tensors,
    )
