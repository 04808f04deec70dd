"""Gemma 3's configuration: from Hugging Face's config.json, from GGUF metadata, or a preset.

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
    """The shape of a Gemma 3 text model.

    window              keys that a sliding layer sees, the token itself included
    global_every        layer i is global iff (i + 1) % global_every == 0, else sliding
    query_scale         factor of q k^T
    global_rope_factor  divides the rotary frequencies of global layers
    """

    window: int
    query_scale: float
    norm_eps: float = 1e-6
    global_every: int = 6
    global_rope_base: float = 1_000_000.0
    global_rope_factor: float = 1.0
    local_rope_base: float = 10_000.0

    def is_global(self, layer: int) -> bool:
        """Whether a layer attends to the whole context."""
        return (layer + 1) % self.global_every == 0


PRESETS: Mapping[str, Config] = {
    "gemma3-270m": Config(
        layers=18, hidden=640, ffn=2048, heads=4, kv_heads=1, head_dim=256, window=512,
        max_context=32768, vocab_size=262144, query_scale=256**-0.5,
    ),
    "gemma3-1b": Config(
        layers=26, hidden=1152, ffn=6912, heads=4, kv_heads=1, head_dim=256, window=512,
        max_context=32768, vocab_size=262144, query_scale=256**-0.5,
    ),
    "gemma3-4b": Config(
        layers=34, hidden=2560, ffn=10240, heads=8, kv_heads=4, head_dim=256, window=1024,
        max_context=131072, vocab_size=262208, query_scale=256**-0.5, global_rope_factor=8.0,
    ),
    "gemma3-12b": Config(
        layers=48, hidden=3840, ffn=15360, heads=16, kv_heads=8, head_dim=256, window=1024,
        max_context=131072, vocab_size=262208, query_scale=256**-0.5, global_rope_factor=8.0,
    ),
    "gemma3-27b": Config(
        layers=62, hidden=5376, ffn=21504, heads=32, kv_heads=16, head_dim=128, window=1024,
        max_context=131072, vocab_size=262208, query_scale=168**-0.5, global_rope_factor=8.0,
    ),
}  # fmt: skip

# --- Hugging Face

# Gemma3TextConfig's own defaults: files leave out what equals them.
_HUGGING_FACE_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
    "query_pre_attn_scalar": 256.0,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "rope_scaling": None,
}
# Keys that would change what is computed, with the only value that is computed here.
_HUGGING_FACE_FIXED: Mapping[str, Any] = {
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "use_bidirectional_attention": False,
}
# Keys that change nothing for inference, or that other files are the source of.
_HUGGING_FACE_IGNORED = frozenset(
    "architectures attention_dropout bos_token_id cache_implementation dtype eos_token_id "
    "initializer_range model_type pad_token_id torch_dtype transformers_version use_cache".split()
)
_HUGGING_FACE_PATTERN = ("sliding_window_pattern", "_sliding_window_pattern", "layer_types")
# The larger models: the text model's keys are one level down, beside the vision tower's.
_HUGGING_FACE_OUTER = frozenset(
    "architectures boi_token_index bos_token_id dtype eoi_token_index eos_token_id "
    "image_token_index image_token_id boi_token_id eoi_token_id initializer_range "
    "mm_tokens_per_image model_type pad_token_id text_config tie_word_embeddings torch_dtype "
    "transformers_version use_cache vision_config".split()
)


def from_hugging_face(data: Mapping[str, Any]) -> Config:
    """Read a config.json; raises ConfigError, naming the key that is unknown or unsupported."""
    if data.get("model_type") not in ("gemma3_text", "gemma3"):
        raise ConfigError(
            f"model_type: expected gemma3_text or gemma3, got {data.get('model_type')!r}"
        )
    if "text_config" in data:
        refuse_unknown(data, _HUGGING_FACE_OUTER, "config.json")
        require(data["text_config"], dict, "config.json: text_config")
        outer = {key: data[key] for key in ("tie_word_embeddings",) if key in data}
        return from_hugging_face({**outer, "model_type": "gemma3_text", **data["text_config"]})
    known = {*_HUGGING_FACE_DEFAULTS, *_HUGGING_FACE_FIXED, *_HUGGING_FACE_IGNORED}
    refuse_unknown(data, known | {*_HUGGING_FACE_PATTERN, "rope_parameters"}, "config.json")
    refuse_other_values(data, _HUGGING_FACE_FIXED)
    get = {**_HUGGING_FACE_DEFAULTS, **_rope_keys(data), **data}
    require_kinds(get, _HUGGING_FACE_DEFAULTS)
    config = Config(
        layers=get["num_hidden_layers"],
        hidden=get["hidden_size"],
        ffn=get["intermediate_size"],
        heads=get["num_attention_heads"],
        kv_heads=get["num_key_value_heads"],
        head_dim=get["head_dim"],
        window=get["sliding_window"],
        max_context=get["max_position_embeddings"],
        vocab_size=get["vocab_size"],
        query_scale=float(get["query_pre_attn_scalar"] ** -0.5),
        norm_eps=float(get["rms_norm_eps"]),
        global_every=get.get("sliding_window_pattern") or get.get("_sliding_window_pattern") or 6,
        global_rope_base=float(get["rope_theta"]),
        global_rope_factor=_linear_factor(get["rope_scaling"]),
        local_rope_base=float(get["rope_local_base_freq"]),
    )
    _check_layer_types(config, data.get("layer_types"))
    return config


def _rope_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    """Newer files keep the rotary settings by kind of layer; say them with the older keys."""
    if "rope_parameters" not in data:
        return {}
    by_layer_type = data["rope_parameters"]
    require(by_layer_type, dict, "config.json: rope_parameters")
    refuse_unknown(by_layer_type, {"full_attention", "sliding_attention"}, "rope_parameters")
    for layer_type in ("sliding_attention", "full_attention"):
        if layer_type not in by_layer_type:
            raise ConfigError(f"rope_parameters: {layer_type} is missing")
        require(by_layer_type[layer_type], dict, f"rope_parameters: {layer_type}")
    local, whole = by_layer_type["sliding_attention"], by_layer_type["full_attention"]
    if local.get("rope_type", "default") != "default":
        raise ConfigError(f"rope_parameters.sliding_attention: {local!r}, supported is default")
    scaling = {key: value for key, value in whole.items() if key != "rope_theta"}
    return {
        "rope_theta": required_float(whole, "rope_theta", "rope_parameters"),
        "rope_local_base_freq": required_float(local, "rope_theta", "rope_parameters"),
        "rope_scaling": scaling,
    }


def _linear_factor(scaling: Mapping[str, Any] | None) -> float:
    if scaling is None:
        return 1.0
    require(scaling, dict, "config.json: rope_scaling")
    refuse_unknown(scaling, {"rope_type", "type", "factor"}, "rope_scaling")
    rope_type = scaling.get("rope_type", scaling.get("type", "default"))
    if rope_type == "default":
        return 1.0
    if rope_type != "linear":
        raise ConfigError(f"rope_scaling: type {rope_type!r}, supported are linear and default")
    return required_float(scaling, "factor", "rope_scaling")


def _check_layer_types(config: Config, layer_types: list[str] | None) -> None:
    expected = [
        "full_attention" if config.is_global(layer) else "sliding_attention"
        for layer in range(config.layers)
    ]
    if layer_types is not None and layer_types != expected:
        raise ConfigError(
            f"layer_types: supported is full_attention at every {config.global_every}th layer, "
            f"got {layer_types!r:.200}"
        )


# --- GGUF

_GGUF_REQUIRED = frozenset(
    "block_count embedding_length feed_forward_length attention.head_count "
    "attention.head_count_kv attention.key_length attention.value_length "
    "attention.sliding_window attention.layer_norm_rms_epsilon context_length".split()
)
_GGUF_OPTIONAL = frozenset(
    "rope.freq_base rope.freq_base_swa rope.scaling.type rope.scaling.factor "
    "vocab_size attention.sliding_window_pattern".split()
)


def from_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> Config:
    """Read GGUF metadata and the shapes of the file's tensors.

    Raises ConfigError, naming the key that is missing, unknown or unsupported.
    """
    values = gguf_keys(metadata, "gemma3", _GGUF_REQUIRED, _GGUF_OPTIONAL)
    head_dim = values["attention.key_length"]
    if values["attention.value_length"] != head_dim:
        raise ConfigError("gemma3.attention.value_length differs from key_length: unsupported")
    scaling = values.get("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ConfigError(f"gemma3.rope.scaling.type: {scaling!r}, supported is linear")
    heads, hidden, layers = (
        values[key] for key in ("attention.head_count", "embedding_length", "block_count")
    )
    # The format does not say the scale. Only the 27B, known by its depth, has hidden / heads.
    scalar = hidden / heads if layers == PRESETS["gemma3-27b"].layers else head_dim
    return Config(
        layers=layers,
        hidden=hidden,
        ffn=values["feed_forward_length"],
        heads=heads,
        kv_heads=values["attention.head_count_kv"],
        head_dim=head_dim,
        window=values["attention.sliding_window"],
        max_context=values["context_length"],
        vocab_size=vocabulary_rows(tensors),
        query_scale=scalar**-0.5,
        norm_eps=values["attention.layer_norm_rms_epsilon"],
        global_every=values.get("attention.sliding_window_pattern", 6),
        global_rope_base=values.get("rope.freq_base", 1_000_000.0),
        global_rope_factor=values.get("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0,
        local_rope_base=values.get("rope.freq_base_swa", 10_000.0),
    )
