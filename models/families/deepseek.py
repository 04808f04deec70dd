"""DeepSeekMoE 16B: Llama's attention, and experts beside a shared MLP after the first layers.

Source: "DeepSeekMoE" (2024) and modeling_deepseek.py of deepseek-moe-16b-base.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.experts import (
    EXPERT_NAMES,
    ExpertsConfig,
    after_dense_layers,
    experts_from_gguf,
    feed_forward,
)
from hearthd.models.decoder.layers import Attention, Block, DecoderModel
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS
from hearthd.models.dsl.functions.routing import SOFTMAX

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_SOFTMAX_IN_GGUF = 1


class DeepseekMoe(DecoderModel):
    """Blocks with experts and a shared MLP, after some without experts."""

    def __init__(self, config: ExpertsConfig) -> None:
        blocks = [
            Block(config, Attention(config), feed_forward(config, layer))
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json."""
    data.rename(n_routed_experts="num_experts", n_shared_experts="num_shared_experts")
    data.fixed(moe_layer_freq=1, scoring_func=SOFTMAX)
    data.ignore("aux_loss_alpha", "seq_aux")
    return ExpertsConfig(**shared_experts(data, from_config_json(data)))


def shared_experts(data: ConfigJson, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of experts whose scores are a softmax, beside a shared MLP, and `fields`."""
    width = data.size("moe_intermediate_size")
    dense = data.count("first_k_dense_replace", default=0)
    return {
        **fields,
        "experts": data.size("num_experts"),
        "experts_per_token": data.size("num_experts_per_tok"),
        "expert_ffn": width,
        "shared_ffn": data.count("num_shared_experts", default=0) * width or None,
        "routed": after_dense_layers(dense, fields["layers"]),
        "normalized": data.flag("norm_topk_prob", default=False),
    }


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata."""
    data.fixed("expert_gating_func", _SOFTMAX_IN_GGUF)
    shared = data.count("expert_shared_count", default=0)
    fields = experts_from_gguf(data, from_gguf_metadata(data))
    return ExpertsConfig(
        **fields | {"shared_ffn": shared * fields["expert_ffn"] or None},
        normalized=data.flag("expert_weights_norm", default=False),
        factor=data.number("expert_weights_scale", default=1.0),
    )


ARCHITECTURE = Architecture(
    name="deepseek",
    config=ExpertsConfig,
    model_types=("deepseek",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=DeepseekMoe,
    tensors=replace(EXPERT_NAMES, interleaved=QUERIES_AND_KEYS),
)
