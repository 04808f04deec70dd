"""Hunyuan 3: the experts of dots.llm1, under other names.

Source: the model `hy_v3` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_GGUF_NAMES,
    EXPERT_NAMES,
    ExpertsConfig,
)
from hearthd.models.families.glm4moe import corrected_experts, corrected_experts_from_gguf
from hearthd.models.families.qwen3moe import Qwen3Moe

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

# About the precision of a few sums, which are f32 here.
_IGNORED = (
    "enable_attention_fp32_softmax", "enable_lm_head_fp32", "enable_moe_fp32_combine",
)  # fmt: skip
_PARTS = ("gate_proj", "up_proj", "down_proj")


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json. The layer that predicts a further token is not read."""
    data.fixed(qk_norm=True, route_norm=True)
    data.fixed(moe_router_use_sigmoid=True, moe_router_enable_expert_bias=True)
    data.ignore(*_IGNORED)
    data.rename(router_scaling_factor="routed_scaling_factor")
    fields = corrected_experts(data, from_config_json(data))
    data.fixed(expert_hidden_dim=fields["expert_ffn"])
    kinds = data.texts("mlp_layer_types", default=())
    routed = tuple(kind == "sparse" for kind in kinds) or fields["routed"]
    return ExpertsConfig(**fields | {"routed": routed})


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata, which do not say which layers have experts: their tensors do."""
    fields = corrected_experts_from_gguf(data, from_gguf_metadata(data))
    routed = (data.has_tensor(f"blk.{i}.ffn_gate_inp.weight") for i in range(fields["layers"]))
    shared = data.size("expert_shared_feed_forward_length", default=fields["expert_ffn"])
    return ExpertsConfig(**fields | {"routed": tuple(routed), "shared_ffn": shared})


ARCHITECTURE = Architecture(
    name="hy_v3",
    config=ExpertsConfig,
    model_types=("hy_v3",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen3Moe,
    tensors=replace(
        EXPERT_NAMES,
        gguf={**EXPERT_GGUF_NAMES, "mlp.choice.bias": "exp_probs_b"},
        folder={
            **EXPERT_FOLDER_NAMES,
            "mlp.gate": "mlp.router.gate",
            "mlp.choice.bias": "mlp.expert_bias",
            **{f"mlp.shared_experts.{part}": f"mlp.shared_mlp.{part}" for part in _PARTS},
        },
    ),
)
