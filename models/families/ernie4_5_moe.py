"""ERNIE 4.5 with experts: some layers have an MLP, and the others experts and a shared MLP.

Source: "ERNIE 4.5 Technical Report" (2025) and the model `ernie4_5_moe` of transformers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.experts import (
    EXPERT_NAMES,
    ExpertsConfig,
    experts_from_gguf,
)
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS
from hearthd.models.families.deepseek import DeepseekMoe

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_MIN_SUM = 1e-12
# About training, and about parts that predict several tokens.
_IGNORED = (
    "moe_aux_loss_lambda", "moe_capacity", "moe_gate", "moe_use_aux_free",
    "num_nextn_predict_layers", "output_router_logits", "router_aux_loss_coef",
)  # fmt: skip


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json; the experts of a layer have one correction of scores for each."""
    # The defaults of transformers' Ernie4_5_MoeConfig: files leave out what equals them.
    data.assume(tie_word_embeddings=True, rope_theta=500_000.0)
    data.fixed(use_bias=False)
    data.ignore(*_IGNORED)
    fields = from_config_json(data)
    layers = range(fields["layers"])
    first = data.count("moe_layer_start_index", default=1)
    last = data.count("moe_layer_end_index", default=layers[-1])
    period = data.size("moe_layer_interval", default=1)
    width, shared = (
        data.size("moe_intermediate_size"),
        data.count("moe_num_shared_experts", default=2),
    )
    return ExpertsConfig(
        **fields,
        experts=data.size("moe_num_experts"),
        experts_per_token=data.size("moe_k"),
        expert_ffn=width,
        shared_ffn=width * shared or None,
        routed=tuple(first <= layer <= last and (layer + 1) % period == 0 for layer in layers),
        choice_bias=True,
        normalized=True,
        min_sum=data.number("moe_norm_min", default=_MIN_SUM),
    )


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata."""
    return ExpertsConfig(
        **experts_from_gguf(data, from_gguf_metadata(data)),
        choice_bias=True,
        normalized=True,
        min_sum=_MIN_SUM,
    )


ARCHITECTURE = Architecture(
    name="ernie4_5-moe",
    config=ExpertsConfig,
    model_types=("ernie4_5_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=DeepseekMoe,
    tensors=replace(
        EXPERT_NAMES,
        interleaved=QUERIES_AND_KEYS,
        folder_interleaved=True,
        folder={
            **EXPERT_NAMES.folder,
            "mlp.choice.bias": "mlp.moe_statics.e_score_correction_bias",
        },
        others=("mtp_",),
    ),
)
