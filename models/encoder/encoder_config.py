"""The fields of `ModelConfig` of encoders whose files have BERT's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.typed_keys import TypedKeys


def encoder_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields but `norm_eps`, from config.json; raises ConfigError."""
    shape = _shape(
        data, "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
        "max_position_embeddings",
    )  # fmt: skip
    return shape | {"vocab_size": data.size("vocab_size"), "pooling": data.encoder_pooling()}


def encoder_fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields, from GGUF metadata; raises ConfigError."""
    data.require_both_directions()
    data.size("vocab_size", default=1)  # the table has as many rows
    shape = _shape(
        data, "block_count", "embedding_length", "feed_forward_length", "attention.head_count",
        "context_length",
    )  # fmt: skip
    for key in ("attention.key_length", "attention.value_length"):
        data.fixed(key, shape["hidden"] // shape["heads"])
    data.ignore("classifier.output_labels")
    # A server of llama.cpp is told that a file with a classifier ranks.
    usual = "rank" if data.has_tensor("cls.output.weight") else "mean"
    return shape | {
        "vocab_size": data.vocabulary_rows,
        "norm_eps": data.epsilon("layer_norm"),
        "pooling": data.pooling(usual=usual),
    }


def _shape(data: TypedKeys, *keys: str) -> dict[str, Any]:
    layers, hidden, ffn, heads, context = map(data.size, keys)
    return {
        "layers": layers,
        "hidden": hidden,
        "ffn": ffn,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": max(1, hidden // heads),
        "max_context": context,
    }
