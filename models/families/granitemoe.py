"""Granite with experts: Granite 3, and Granite 4 without Mamba layers.

Source: the models `granitemoe`, `granitemoeshared` and `granitemoehybrid` of transformers (2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import (
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    MixtureOfExperts,
    experts_from_config_json,
    experts_from_gguf,
)
from hearthd.models.dsl.functions.routing import CHOSEN
from hearthd.models.families import granite
from hearthd.models.families.granite import Granite, GraniteBlock

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


@dataclass(frozen=True, kw_only=True)
class Config(granite.Config, ExpertsConfig):
    """The shape of a model."""

    by_layer = ExpertsConfig.by_layer


class GraniteMoe(Granite):
    """Granite's blocks with experts."""

    def __init__(self, config: Config) -> None:
        blocks = [GraniteBlock(config, MixtureOfExperts(config)) for _ in range(config.layers)]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, in which `intermediate_size` is the width of an expert."""
    return Config(**with_experts(data, granite.fields_from_hugging_face(data)))


def with_experts(data: ConfigJson, fields: dict[str, Any]) -> dict[str, Any]:
    """Granite's fields, and the fields of experts from config.json."""
    fields = experts_from_config_json(data, fields, width="intermediate_size")
    shared = data.count("shared_intermediate_size", default=0) or None
    return fields | {"normalized": True, "scores": CHOSEN, "shared_ffn": shared}


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    return Config(**fields_from_gguf(data))


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config` from GGUF metadata; raises ConfigError."""
    fields = experts_from_gguf(data, granite.fields_from_gguf(data))
    return {**fields, "scores": CHOSEN, "normalized": True}


ARCHITECTURE = Architecture(
    name="granitemoe",
    config=Config,
    model_types=("granitemoe", "granitemoeshared", granite.GRANITE_4),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=GraniteMoe,
    tensors=replace(
        granite.ARCHITECTURE.tensors,
        gguf=EXPERT_GGUF_NAMES,
        folder={
            "mlp.gate": "block_sparse_moe.router.layer",
            "mlp.experts.down_proj": "block_sparse_moe.output_linear",
        },
        joined={
            "block_sparse_moe.input_linear": ("mlp.experts.gate_proj", "mlp.experts.up_proj"),
            "shared_mlp.input_linear": (
                "mlp.shared_experts.gate_proj",
                "mlp.shared_experts.up_proj",
            ),
            "shared_mlp.output_linear": ("mlp.shared_experts.down_proj",),
        },
    ),
)
