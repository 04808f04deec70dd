"""GLM-4.7-Flash, and DeepSeek-V2 and V3 models with one group of experts.

Source: "DeepSeek-V2" and "DeepSeek-V3" (2024), and `glm4_moe_lite` of transformers (2026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_gguf_metadata
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    after_dense_layers,
    experts_from_gguf,
    feed_forward,
)
from hearthd.models.decoder.latent_attention import (
    KEYS_AND_VALUES,
    LATENT_GGUF_NAMES,
    LatentAttention,
    LatentConfig,
    latent_fields,
)
from hearthd.models.decoder.layers import Block, DecoderModel, rope_table
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl.functions.routing import SIGMOID, SOFTMAX

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_SUM_OFFSET = 1e-20
_GATES = {1: SOFTMAX, 2: SIGMOID}  # as llama.cpp numbers them
_V2 = "deepseek_v2"


@dataclass(frozen=True, kw_only=True)
class Config(LatentConfig, ExpertsConfig):
    """The shape of a model."""

    by_layer = (*LatentConfig.by_layer, "routed")


class Deepseek2(DecoderModel):
    """Blocks with latent vectors, and experts or an MLP."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(config, LatentAttention(config), feed_forward(config, layer))
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        return [rope_table(self.config, positions, self.config.rotary_width)] * self.config.layers


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    is_v2 = data.text("model_type", default="") == _V2
    return Config(**fields_from_hugging_face(data, SOFTMAX if is_v2 else SIGMOID))


def fields_from_hugging_face(
    data: ConfigJson, scores: str, *, share: float = 1.0
) -> dict[str, Any]:
    """The fields of `Config` from config.json, of experts with these scores.

    share  the only supported `partial_rotary_factor`, which nothing is computed with
    """
    is_softmax = scores == SOFTMAX
    data.ignore(
        "aux_loss_alpha", "ep_size", "num_nextn_predict_layers", "output_router_logits", "seq_aux"
    )
    method = "greedy" if is_softmax else "noaux_tc"
    data.fixed(scoring_func=scores, topk_method=method, moe_layer_freq=1)
    if is_softmax:  # chooses groups otherwise
        data.fixed(n_group=1, topk_group=1)
    data.fixed(rope_interleave=True, partial_rotary_factor=share)
    fields = latent_fields(data)
    layers, width = fields["layers"], data.size("moe_intermediate_size")
    dense = data.count("first_k_dense_replace", default=1)
    kinds = data.texts("mlp_layer_types", default=())
    routed = tuple(kind == "sparse" for kind in kinds) or after_dense_layers(dense, layers)
    return {
        **fields,
        "routed": routed,
        "experts": data.size("n_routed_experts"),
        "experts_per_token": data.size("num_experts_per_tok"),
        "groups": data.size("n_group", default=1),
        "groups_per_token": data.size("topk_group", default=1),
        "expert_ffn": width,
        "shared_ffn": data.count("n_shared_experts", default=0) * width or None,
        "normalized": data.flag("norm_topk_prob", default=not is_softmax),
        "factor": data.number("routed_scaling_factor", default=1.0),
        **_router(scores),
    }


def _router(scores: str) -> dict[str, Any]:
    is_corrected = scores == SIGMOID
    offset = _SUM_OFFSET if is_corrected else None
    return {"scores": scores, "choice_bias": is_corrected, "sum_offset": offset}


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config` from GGUF metadata.

    A layer that predicts further tokens follows the others.
    """
    rotary, latent = data.size("rope.dimension_count"), data.size("attention.kv_lora_rank")
    width = data.size("attention.key_length_mla", default=data.size("attention.key_length"))
    value_width = data.size("attention.value_length", default=latent)
    data.ignore("attention.head_count_kv")  # the caches have a head, where layers attend
    fields = from_gguf_metadata(data, rope_width=rotary, kv_heads=1, value_width=value_width)
    # The key has a tenth of what it has in files of other architectures.
    growth = data.number("rope.scaling.yarn_log_multiplier", default=0.0)
    magnitude = 1.0 + growth * math.log(data.number("rope.scaling.factor", default=1.0))
    fields |= {
        "layers": fields["layers"] - data.count("nextn_predict_layers", default=0),
        "head_dim": latent + rotary,
        "rope_magnitude": 1.0,
    }
    # The files of DeepSeek-V2 and the first files of GLM-4.7-Flash lack the key.
    is_corrected = data.has_tensor(f"blk.{fields['layers'] - 1}.exp_probs_b.bias")
    scores = data.meaning("expert_gating_func", _GATES, default=2 if is_corrected else 1)
    if scores == SOFTMAX:  # chooses groups otherwise
        data.fixed("expert_group_count", 1)
        data.fixed("expert_group_used_count", 1)
    shared = data.count("expert_shared_count", default=0)
    fields = experts_from_gguf(data, fields)
    return fields | {
        "query_rank": data.size("attention.q_lora_rank", default=None),
        "latent": latent,
        "rotary_width": rotary,
        "key_width": width - rotary,
        "value_width": data.size("attention.value_length_mla", default=value_width),
        "attention_scale": magnitude**2 * width**-0.5,
        "turns_neighbors": True,
        "groups": data.size("expert_group_count", default=1),
        "groups_per_token": data.size("expert_group_used_count", default=1),
        "shared_ffn": shared * fields["expert_ffn"] or None,
        "normalized": data.flag("expert_weights_norm", default=False),
        "factor": data.number("expert_weights_scale", default=1.0),
        **_router(scores),
    }


ARCHITECTURE = Architecture(
    name="deepseek2",
    config=Config,
    model_types=("glm4_moe_lite", "deepseek_v2", "deepseek_v3"),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: Config(**fields_from_gguf(data)),
    model=Deepseek2,
    tensors=TensorNames(
        gguf={**EXPERT_GGUF_NAMES, **LATENT_GGUF_NAMES},
        folder={**EXPERT_FOLDER_NAMES, "mlp.choice.bias": "mlp.gate.e_score_correction_bias"},
        grouped=(KEYS_AND_VALUES,),
    ),
)
