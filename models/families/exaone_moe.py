"""K-EXAONE: the experts of dots.llm1; as in EXAONE 4, layers without a window have no positions.

Source: "K-EXAONE Technical Report" (2026) and the model `exaone_moe` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.experts import EXPERT_FOLDER_NAMES, EXPERT_NAMES, ExpertsConfig
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families import exaone4
from hearthd.models.families.glm4moe import corrected_experts, corrected_experts_from_gguf
from hearthd.models.families.qwen3moe import Qwen3Moe

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


@dataclass(frozen=True, kw_only=True)
class Config(ExpertsConfig, exaone4.Config):
    """The shape of a model."""


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. The layer that predicts a further token is not read."""
    data.fixed(scoring_func=SIGMOID)
    data.rename(first_last_k_dense_replace="first_k_dense_replace")
    fields = corrected_experts(data, from_config_json(data))
    kinds = ["sparse" if routed else "dense" for routed in fields["routed"]]
    data.fixed(mlp_layer_types=kinds)
    return Config(**fields, windows=exaone4.windows_from_config_json(data, fields["layers"]))


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = corrected_experts_from_gguf(data, from_gguf_metadata(data))
    return Config(**fields, windows=data.windows_by_layer(fields["layers"], exaone4.PERIOD))


ARCHITECTURE = Architecture(
    name="exaone-moe",
    config=Config,
    model_types=("exaone_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen3Moe,
    tensors=replace(
        EXPERT_NAMES,
        folder={**EXPERT_FOLDER_NAMES, "mlp.choice.bias": "mlp.e_score_correction_bias"},
    ),
)
