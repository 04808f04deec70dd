"""BLOOM: GPT-2's blocks with linear biases in place of positions, and a norm of embeddings.

Source: "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model" (2022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.layers import Block, PlainMLP
from hearthd.models.decoder.linear_biases import BiasedAttention, BiasedConfig, BiasedModel
from hearthd.models.decoder.tensor_names import (
    GGUF_NAMES,
    JOINED_HEADS,
    TensorNames,
    heads_by_key,
)
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.dsl.graph import Tensor


class Bloom(BiasedModel):
    """Blocks with LayerNorm, whose heads have biases."""

    def __init__(self, config: BiasedConfig) -> None:
        blocks = [
            Block(config, BiasedAttention(config), PlainMLP(config, f.gelu_tanh), nn.LayerNorm)
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.embed_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)

    @override
    def embed(self, tokens: Tensor) -> Tensor:
        return self.embed_norm(super().embed(tokens))


def from_hugging_face(data: ConfigJson) -> BiasedConfig:
    """Read config.json."""
    data.rename(
        layer_norm_epsilon="rms_norm_eps",
        n_embed="hidden_size",
        n_head="num_attention_heads",
        n_layer="num_hidden_layers",
        seq_length="max_position_embeddings",
    )
    data.assume(rms_norm_eps=1e-5, tie_word_embeddings=True, max_position_embeddings=2048)
    data.fixed(apply_residual_connection_post_layernorm=False, skip_bias_add_qkv=False)
    data.ignore(
        "attention_softmax_in_fp32", "bias_dropout_fusion", "hidden_dropout",
        "masked_softmax_fusion", "offset_alibi", "skip_bias_add", "slow_but_exact",
    )  # fmt: skip
    ffn = data.size("n_inner", default=4 * data.size("hidden_size"))
    biases = dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), True)
    return BiasedConfig(**from_config_json(data, ffn=ffn) | biases)


ARCHITECTURE = Architecture(
    name="bloom",
    config=BiasedConfig,
    model_types=("bloom",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: BiasedConfig(**from_gguf_metadata(data)),
    model=Bloom,
    tensors=TensorNames(
        gguf={**GGUF_NAMES, "embed_norm": "token_embd_norm"},
        prefixes=("transformer.", ""),
        layers="h",
        folder={
            "self_attn.o_proj": "self_attention.dense",
            "mlp.up_proj": "mlp.dense_h_to_4h",
            "mlp.down_proj": "mlp.dense_4h_to_h",
            "embed_tokens": "word_embeddings",
            "embed_norm": "word_embeddings_layernorm",
            "norm": "ln_f",
        },
        grouped=(JOINED_HEADS, heads_by_key("self_attention.query_key_value")),
    ),
)
