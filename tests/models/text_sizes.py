"""The sizes of a text model, by the keys of config.json that most families share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hearthd.models.decoder.config.decoder_config import DecoderConfig


def text_sizes(config: DecoderConfig) -> dict[str, Any]:
    return {
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "intermediate_size": config.ffn,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_context,
        "vocab_size": config.vocab_size,
    }
