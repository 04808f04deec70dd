"""MiniMax-M2: experts chosen by corrected sigmoids; queries and keys are normalized together.

Source: the model `minimax_m2` of transformers (2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import (
    EXPERT_NAMES,
    ExpertsConfig,
    MixtureOfExperts,
    experts_from_config_json,
    experts_from_gguf,
)
from hearthd.models.decoder.layers import Block
from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    PartialRopeModel,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families import mixtral
from hearthd.models.families.olmo2 import Olmo2Attention

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_SIGMOID_IN_GGUF = 2
_ATTENDS = 1  # in the list of the layers' kinds, which older models of MiniMax have too
# About training, and about layers that predict several tokens.
_IGNORED = (
    "layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta",
    "mlp_intermediate_size", "mtp_transformer_layers", "num_mtp_modules", "router_jitter_noise",
    "shared_moe_mode", "use_mtp",
)  # fmt: skip
_ROUTER = {"scores": SIGMOID, "choice_bias": True, "normalized": True}


@dataclass(frozen=True, kw_only=True)
class Config(PartialRopeConfig, ExpertsConfig):
    """The shape of a model."""

    by_layer = ExpertsConfig.by_layer


class MiniMaxM2(PartialRopeModel):
    """Blocks with experts."""

    def __init__(self, config: Config) -> None:
        layers = range(config.layers)
        blocks = [Block(config, Olmo2Attention(config), MixtureOfExperts(config)) for _ in layers]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. The layers that predict further tokens are not read."""
    data.fixed(qk_norm_type="per_layer", scoring_func=SIGMOID, shared_intermediate_size=0)
    data.fixed(use_qk_norm=True, use_routing_bias=True, sliding_window=None)
    data.ignore(*_IGNORED)
    share = 1.0
    if data.has("rotary_dim"):
        share = data.size("rotary_dim") / data.size("head_dim")
    fields = experts_from_config_json(data, partial_fields(data, share), width="intermediate_size")
    data.fixed(attn_type_list=[_ATTENDS] * fields["layers"])
    return Config(**fields | _ROUTER)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    data.fixed("expert_gating_func", _SIGMOID_IN_GGUF)
    return Config(**experts_from_gguf(data, partial_fields_from_gguf(data, 1.0)) | _ROUTER)


ARCHITECTURE = Architecture(
    name="minimax-m2",
    config=Config,
    model_types=("minimax_m2",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=MiniMaxM2,
    tensors=replace(
        EXPERT_NAMES,
        folder={
            **mixtral.ARCHITECTURE.tensors.folder,
            "mlp.choice.bias": "block_sparse_moe.e_score_correction_bias",
        },
    ),
)
