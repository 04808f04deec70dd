"""Falcon 7B and Falcon 2 11B: attention and MLP side by side after one LayerNorm.

Source: "The Falcon Series of Open Language Models" (2023), "Falcon2-11B Technical Report" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import Attention, DecoderModel, ParallelBlock, PlainMLP
from hearthd.models.decoder.tensor_names import JOINED_HEADS, TensorNames, heads_by_key
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


class Falcon(DecoderModel):
    """Parallel blocks with an MLP without a gate."""

    def __init__(self, config: DecoderConfig) -> None:
        blocks = [
            ParallelBlock(config, Attention(config), PlainMLP(config, f.gelu))
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json. Falcon 40B and 180B, with two norms in a block, are not supported."""
    data.rename(layer_norm_epsilon="rms_norm_eps", num_kv_heads="num_key_value_heads")
    data.assume(rms_norm_eps=1e-5, tie_word_embeddings=True, max_position_embeddings=2048)
    data.fixed(alibi=False, parallel_attn=True, activation="gelu", bias=False)
    data.fixed(apply_residual_connection_post_layernorm=False)
    data.ignore("ff_factor", "hidden_dropout")
    has_groups = data.flag("new_decoder_architecture", default=False)
    shares_all = data.flag("multi_query", default=True)
    if data.size("num_ln_in_parallel_attn", default=1 + has_groups) != 1:
        raise ConfigError("num_ln_in_parallel_attn: supported is 1 norm in a block")
    hidden = data.size("hidden_size")
    fields = from_config_json(data, ffn=data.size("ffn_hidden_size", default=4 * hidden))
    if not has_groups:
        fields["kv_heads"] = 1 if shares_all else fields["heads"]
    return DecoderConfig(**fields)


ARCHITECTURE = Architecture(
    name="falcon",
    config=DecoderConfig,
    model_types=("falcon",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Falcon,
    tensors=TensorNames(
        prefixes=("transformer.", ""),
        layers="h",
        folder={
            "self_attn.o_proj": "self_attention.dense",
            "mlp.up_proj": "mlp.dense_h_to_4h",
            "mlp.down_proj": "mlp.dense_4h_to_h",
            "embed_tokens": "word_embeddings",
            "norm": "ln_f",
        },
        grouped=(JOINED_HEADS, heads_by_key("self_attention.query_key_value")),
    ),
)
