"""DBRX: experts between norms that subtract the mean; queries, keys and values are clipped.

Source: "Introducing DBRX" (Databricks, 2024) and the model `dbrx` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.experts import (
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    experts_from_config_json,
    experts_from_gguf,
    feed_forward,
)
from hearthd.models.decoder.layers import Block, DecoderModel
from hearthd.models.decoder.tensor_names import JOINED_HEADS, GroupedRows, TensorNames
from hearthd.models.dsl import nn
from hearthd.models.families.olmo import ClippedAttention

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


@dataclass(frozen=True, kw_only=True)
class Config(ExpertsConfig):
    """The shape of a model; `clip` bounds queries, keys and values; None: they are not bounded."""

    clip: float | None


class Dbrx(DecoderModel):
    """Llama's blocks with such norms, such attention, and experts."""

    def __init__(self, config: Config) -> None:
        norm = partial(nn.LayerNorm, bias=False)
        blocks = [
            Block(config, ClippedAttention(config, config.clip), feed_forward(config, layer), norm)
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = norm(config.hidden, config.norm_eps)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, whose layers have objects of their own."""
    data.rename(
        d_model="hidden_size", max_seq_len="max_position_embeddings",
        n_heads="num_attention_heads", n_layers="num_hidden_layers",
    )  # fmt: skip
    attention, experts = data.section("attn_config"), data.section("ffn_config")
    experts.rename(
        ffn_hidden_size="moe_intermediate_size", moe_num_experts="num_experts",
        moe_top_k="num_experts_per_tok",
    )  # fmt: skip
    experts.fixed(ffn_act_fn={"name": "silu"}, hidden_size=data.size("hidden_size"))
    experts.one_of("moe_normalize_expert_weights", (1,))
    experts.ignore("moe_jitter_eps", "moe_loss_weight", *_IGNORED)
    attention.ignore("attn_pdrop", *_IGNORED)
    data.ignore("emb_pdrop", "output_router_logits", "router_aux_loss_coef")
    kv_heads, base = attention.size("kv_n_heads"), attention.number("rope_theta", default=1e4)
    data.assume(rms_norm_eps=1e-5, num_key_value_heads=kv_heads, rope_theta=base)
    fields = from_config_json(data, ffn=experts.size("moe_intermediate_size"))
    return Config(
        **experts_from_config_json(experts, fields) | {"normalized": True, "kv_heads": kv_heads},
        clip=attention.number("clip_qkv", default=None),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, in which an expert is as wide as an MLP."""
    return Config(
        **experts_from_gguf(data, from_gguf_metadata(data)),
        normalized=True,
        clip=data.number("attention.clamp_kqv", default=None),
    )


# What transformers writes in an object of a configuration.
_IGNORED = (
    "chunk_size_feed_forward", "id2label", "is_encoder_decoder", "label2id",
    "output_attentions", "output_hidden_states", "problem_type", "return_dict",
)  # fmt: skip
_ATTENTION, _EXPERTS = "norm_attn_norm.attn", "ffn.experts.mlp"
_DOWN = ("mlp.experts.down_proj",)
ARCHITECTURE = Architecture(
    name="dbrx",
    config=Config,
    model_types=("dbrx",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Dbrx,
    tensors=TensorNames(
        gguf={**EXPERT_GGUF_NAMES, "post_attention_layernorm": "attn_output_norm"},
        prefixes=("transformer.", ""),
        layers="blocks",
        folder={
            "embed_tokens": "wte",
            "norm": "norm_f",
            "input_layernorm": "norm_attn_norm.norm_1",
            "post_attention_layernorm": "norm_attn_norm.norm_2",
            "self_attn.o_proj": f"{_ATTENTION}.out_proj",
            "mlp.gate": "ffn.router.layer",
            "mlp.experts.gate_proj.weight": f"{_EXPERTS}.w1",
            "mlp.experts.up_proj.weight": f"{_EXPERTS}.v1",
            f"{_EXPERTS}.w2.weight": f"{_EXPERTS}.w2",
        },
        grouped=(
            replace(JOINED_HEADS, folder=f"{_ATTENTION}.Wqkv"),
            GroupedRows(
                folder=f"{_EXPERTS}.w2",
                parts=_DOWN,
                shape=lambda config: (config.experts, (config.expert_ffn,)),
                transposed=_DOWN,
            ),
        ),
    ),
)
