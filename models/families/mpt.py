"""MPT: blocks with linear biases in place of positions, and without other biases.

Source: "Introducing MPT-7B" (MosaicML, 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.config_json import ConfigJson
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.layers import Block, PlainMLP
from hearthd.models.decoder.linear_biases import BiasedAttention, BiasedConfig, BiasedModel
from hearthd.models.decoder.tensor_names import JOINED_HEADS, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.families.olmo import ClippedAttention

if TYPE_CHECKING:
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


@dataclass(frozen=True, kw_only=True)
class Config(BiasedConfig):
    """The shape of a model; `clip` bounds queries, keys and values; None: they are not bounded."""

    clip: float | None = None


class MptAttention(ClippedAttention, BiasedAttention):
    """Attention with linear biases, whose heads may be bounded."""


def _norm(width: int, eps: float) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps, bias=False)


class Mpt(BiasedModel):
    """Blocks with LayerNorm, whose heads have biases."""

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(config, MptAttention(config, config.clip), PlainMLP(config, f.gelu), _norm)
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = _norm(config.hidden, config.norm_eps)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.rename(
        d_model="hidden_size",
        layer_norm_epsilon="rms_norm_eps",
        max_seq_len="max_position_embeddings",
        n_heads="num_attention_heads",
        n_layers="num_hidden_layers",
    )
    data.assume(rms_norm_eps=1e-5, tie_word_embeddings=True)
    data.fixed(no_bias=True, norm_type="low_precision_layernorm", embedding_fraction=1.0)
    data.ignore(
        "emb_pdrop", "init_config", "init_device", "learned_pos_emb", "tokenizer_name", "verbose"
    )
    if data.has("logit_scale"):
        raise ConfigError("config.json: logit_scale: supported is null")
    data.ignore("logit_scale")
    heads = data.section("attn_config") if data.has("attn_config") else ConfigJson({})
    # What transformers saves of every configuration.
    heads.ignore(
        "chunk_size_feed_forward", "id2label", "is_encoder_decoder", "label2id",
        "output_attentions", "output_hidden_states", "problem_type", "return_dict",
    )  # fmt: skip
    heads.fixed(
        alibi=True, attn_type="multihead_attention", attn_uses_sequence_id=False, prefix_lm=False,
        qk_ln=False, model_type="",
    )  # fmt: skip
    heads.ignore("attn_impl", "attn_pdrop", "softmax_scale")
    if heads.has("softmax_scale"):
        raise ConfigError("config.json: attn_config: softmax_scale: supported is null")
    ffn = data.size("expansion_ratio", default=4) * data.size("hidden_size")
    return Config(
        **from_config_json(data, ffn=ffn),
        clip=heads.number("clip_qkv", default=None),
        largest_bias=heads.number("alibi_bias_max", default=8.0),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata. Biases of 0 are MPT with learned positions, which is not supported."""
    return Config(
        **from_gguf_metadata(data),
        clip=data.number("attention.clamp_kqv", default=None),
        largest_bias=data.number("attention.max_alibi_bias"),
    )


ARCHITECTURE = Architecture(
    name="mpt",
    config=Config,
    model_types=("mpt",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Mpt,
    tensors=TensorNames(
        prefixes=("transformer.",),
        layers="blocks",
        folder={
            "input_layernorm": "norm_1",
            "self_attn.o_proj": "attn.out_proj",
            "post_attention_layernorm": "norm_2",
            "mlp.up_proj": "ffn.up_proj",
            "mlp.down_proj": "ffn.down_proj",
            "embed_tokens": "wte",
            "norm": "norm_f",
        },
        grouped=(JOINED_HEADS, replace(JOINED_HEADS, folder="attn.Wqkv")),
    ),
)
