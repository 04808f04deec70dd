"""GLM-4.5 and GLM-4.5-Air: experts beside a shared MLP; half of each head turns.

Source: "GLM-4.5" (2025) and the model `glm4_moe` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    after_dense_layers,
    experts_from_gguf,
    feed_forward,
)
from hearthd.models.decoder.layers import Attention, Block, NormedAttention
from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    PartialRopeModel,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl.functions.routing import SIGMOID

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_SHARE = 0.5  # of the columns of a head that turn
_ROUTER = {"scores": SIGMOID, "choice_bias": True, "sum_offset": 1e-20}
_SIGMOID_IN_GGUF = 2


@dataclass(frozen=True, kw_only=True)
class Config(PartialRopeConfig, ExpertsConfig):
    """The shape of a model; `normed_heads` says whether queries and keys are normalized."""

    by_layer = ExpertsConfig.by_layer

    normed_heads: bool


class Glm4Moe(PartialRopeModel):
    """Blocks with experts and a shared MLP, after some without experts."""

    def __init__(self, config: Config) -> None:
        attention = NormedAttention if config.normed_heads else Attention
        blocks = [
            Block(config, attention(config), feed_forward(config, layer))
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. The projection of attention's result has no bias."""
    fields = corrected_experts(data, partial_fields(data, _SHARE))
    return Config(
        **fields | {"output_bias": False},
        normed_heads=data.flag("use_qk_norm", default=False),
    )


def corrected_experts(data: ConfigJson, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of experts that are chosen by corrected sigmoids, and `fields`."""
    data.ignore("num_nextn_predict_layers", "output_router_logits")
    data.rename(num_experts="n_routed_experts", num_shared_experts="n_shared_experts")
    dense = data.count("first_k_dense_replace", default=1)
    width = data.size("moe_intermediate_size")
    return {
        **fields,
        **_ROUTER,
        "experts": data.size("n_routed_experts"),
        "experts_per_token": data.size("num_experts_per_tok"),
        "groups": data.size("n_group", default=1),
        "groups_per_token": data.size("topk_group", default=1),
        "expert_ffn": width,
        "shared_ffn": data.count("n_shared_experts", default=1) * width or None,
        "routed": after_dense_layers(dense, fields["layers"]),
        "normalized": data.flag("norm_topk_prob", default=True),
        "factor": data.number("routed_scaling_factor", default=1.0),
    }


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata. A layer that predicts further tokens follows the others.

    GLM-4.5V's positions in images have several axes, which its text does not need.
    """
    data.ignore("rope.dimension_sections")
    return Config(
        **corrected_experts_from_gguf(data, partial_fields_from_gguf(data, _SHARE)),
        normed_heads=data.has_tensor("blk.0.attn_q_norm.weight"),
    )


def corrected_experts_from_gguf(data: GgufMetadata, fields: dict[str, Any]) -> dict[str, Any]:
    """As `corrected_experts`, from GGUF metadata."""
    data.fixed("expert_gating_func", _SIGMOID_IN_GGUF)
    shared = data.count("expert_shared_count", default=0)
    layers = fields["layers"] - data.count("nextn_predict_layers", default=0)
    fields = experts_from_gguf(data, fields | {"layers": layers})
    return {
        **fields,
        **_ROUTER,
        "groups": data.size("expert_group_count", default=1),
        "groups_per_token": data.size("expert_group_used_count", default=1),
        "shared_ffn": shared * fields["expert_ffn"] or None,
        "normalized": data.flag("expert_weights_norm", default=False),
        "factor": data.number("expert_weights_scale", default=1.0),
    }


CORRECTION = {"mlp.choice.bias": "mlp.gate.e_score_correction_bias"}
ARCHITECTURE = Architecture(
    name="glm4moe",
    config=Config,
    model_types=("glm4_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Glm4Moe,
    tensors=TensorNames(
        gguf={**EXPERT_GGUF_NAMES, "post_attention_layernorm": "post_attention_norm"},
        folder={**EXPERT_FOLDER_NAMES, **CORRECTION},
    ),
)
