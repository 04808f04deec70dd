"""Ling 2.0 and Ring 2.0: GLM-4.5's blocks under other names, with normalized heads.

Source: "Every Activation Boosted" (2025) and modeling_bailing_moe_v2.py of Ling-mini-2.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.config import OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import EXPERT_FOLDER_NAMES, EXPERT_GGUF_NAMES
from hearthd.models.decoder.partial_rope import partial_fields, partial_fields_from_gguf
from hearthd.models.decoder.tensor_names import JOINED_HEADS, TensorNames
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families.glm4moe import (
    Config,
    Glm4Moe,
    corrected_experts,
    corrected_experts_from_gguf,
)

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_SHARE = 0.5  # of the columns of a head that turn


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json; Ling 1 and 1.5 have the same `model_type` and another router."""
    scores = data.text("score_function", default="softmax")
    if scores != SIGMOID:
        raise OtherFamily(f"config.json: score_function: got {scores!r:.80}, supported: {SIGMOID}")
    data.fixed(moe_router_enable_expert_bias=True, use_bias=False, use_qk_norm=True)
    data.fixed(norm_head=False, use_qkv_bias=False, use_rmsnorm=True)
    data.ignore("embedding_dropout", "norm_softmax", "output_dropout", "router_dtype")
    fields = corrected_experts(data, partial_fields(data, _SHARE))
    data.fixed(moe_shared_expert_intermediate_size=fields["expert_ffn"])
    return Config(**fields, normed_heads=True)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = corrected_experts_from_gguf(data, partial_fields_from_gguf(data, _SHARE))
    return Config(**fields, normed_heads=True)


ARCHITECTURE = Architecture(
    name="bailingmoe2",
    config=Config,
    model_types=("bailing_moe", "bailing_moe_v2"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Glm4Moe,
    tensors=TensorNames(
        gguf=EXPERT_GGUF_NAMES,
        folder={
            **EXPERT_FOLDER_NAMES,
            "embed_tokens": "word_embeddings",
            "mlp.choice.bias": "mlp.gate.expert_bias",
            "self_attn.k_norm": "attention.key_layernorm",
            "self_attn.o_proj": "attention.dense",
            "self_attn.q_norm": "attention.query_layernorm",
        },
        grouped=(replace(JOINED_HEADS, folder="attention.query_key_value"),),
    ),
)
