"""Fields of models without attention, from their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.config import MAX_LAYERS

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

# What llama.cpp's converter writes: no table of positions limits the context.
UNLIMITED_CONTEXT = 1 << 20
# The shape of attention and of an MLP that no layer has.
_NO_ATTENTION: dict[str, Any] = {
    "ffn": 1, "heads": 1, "kv_heads": 1, "head_dim": 2, "rope_base": 1e4,
}  # fmt: skip
# How weights are initialized, and how they are computed with in training.
_IGNORED = (
    "fused_add_norm", "initializer_range", "rescale_prenorm_residual", "residual_in_fp32",
    "time_step_floor", "time_step_init_scheme", "time_step_max", "time_step_min",
    "time_step_scale", "use_associative_scan", "use_mambapy",
)  # fmt: skip


def recurrent_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `DecoderConfig` from config.json of Mamba; raises ConfigError."""
    data.ignore(*_IGNORED)
    data.fixed(hidden_act="silu", use_bias=False, use_conv_bias=True)
    return {
        **_NO_ATTENTION,
        "layers": data.size("num_hidden_layers", limit=MAX_LAYERS),
        "hidden": data.size("hidden_size"),
        "max_context": data.size("max_position_embeddings", default=UNLIMITED_CONTEXT),
        "vocab_size": data.size("vocab_size"),
        "norm_eps": data.number("layer_norm_epsilon", default=1e-5),
        "tied": data.flag("tie_word_embeddings", default=False),
    }


def recurrent_fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `DecoderConfig` from GGUF metadata; raises ConfigError.

    Files have 0 heads, and an MLP with a width of 0.
    """
    data.ignore("attention.head_count", "feed_forward_length", "vocab_size")
    return {
        **_NO_ATTENTION,
        "layers": data.size("block_count", limit=MAX_LAYERS),
        "hidden": data.size("embedding_length"),
        "max_context": data.size("context_length", default=UNLIMITED_CONTEXT),
        "vocab_size": data.vocabulary_rows,
        "norm_eps": data.epsilon("layer_norm_rms"),
        "tied": not data.has_tensor("output.weight"),
    }
