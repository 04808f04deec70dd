"""Hunyuan-A13B: Hunyuan with experts and a shared MLP.

Source: "Hunyuan-A13B Technical Report" (2025) and the model `hunyuan_v1_moe` of transformers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_gguf_metadata
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    MixtureOfExperts,
    experts_from_gguf,
)
from hearthd.models.decoder.layers import Block, DecoderModel
from hearthd.models.families import hunyuan
from hearthd.models.families.hunyuan import HunyuanAttention, fields_from_hugging_face

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


class HunyuanMoe(DecoderModel):
    """Hunyuan's blocks with experts."""

    def __init__(self, config: ExpertsConfig) -> None:
        blocks = [
            Block(config, HunyuanAttention(config), MixtureOfExperts(config))
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json, in which lists have a number for each layer: all must be the same."""
    data.fixed(use_mixed_mlp_moe=True, norm_topk_prob=True, moe_layer_num_skipped=0, use_mla=False)
    data.ignore("output_router_logits", "moe_drop_tokens", "moe_random_routing_dropped_token")
    fields = fields_from_hugging_face(data)
    width = fields["ffn"]
    if data.has("moe_intermediate_size"):
        width = _same(data, "moe_intermediate_size", fields["layers"])
    shared = 1
    if data.has("num_shared_expert"):
        shared = _same(data, "num_shared_expert", fields["layers"])
    return ExpertsConfig(
        **fields,
        experts=_same(data, "num_experts", fields["layers"]),
        experts_per_token=_same(data, "moe_topk", fields["layers"]),
        expert_ffn=width,
        shared_ffn=shared * fields["ffn"],
        routed=(True,) * fields["layers"],
        normalized=True,
    )


def _same(data: ConfigJson, key: str, layers: int) -> int:
    """The number of every layer; raises ConfigError for layers with several."""
    values = {*data.by_layer(key, layers)}
    if len(values) != 1:
        raise ConfigError(f"config.json: {key}: got {sorted(values)}, supported is one number")
    return values.pop()


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata."""
    return ExpertsConfig(**experts_from_gguf(data, from_gguf_metadata(data)), normalized=True)


ARCHITECTURE = Architecture(
    name="hunyuan-moe",
    config=ExpertsConfig,
    model_types=("hunyuan_v1_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=HunyuanMoe,
    tensors=replace(
        hunyuan.ARCHITECTURE.tensors,
        gguf=EXPERT_GGUF_NAMES,
        folder={
            **hunyuan.ARCHITECTURE.tensors.folder,
            **EXPERT_FOLDER_NAMES,
            "mlp.gate": "mlp.gate.wg",
            **{
                f"mlp.shared_experts.{part}_proj": f"mlp.shared_mlp.{part}_proj"
                for part in ("gate", "up", "down")
            },
        },
    ),
)
