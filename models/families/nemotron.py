"""Nemotron-4 and Minitron: LayerNorm, squared ReLU; half of each head turns.

Source: "Nemotron-4 15B Technical Report" (2024), "LLM Pruning and Distillation" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.partial_rope import (
    LayerNormModel,
    PartialRopeConfig,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families.nemotron_h import SquaredMLP

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_SHARE = 0.5  # of the columns of a head that turn


class Nemotron(LayerNormModel):
    """Blocks with squared ReLU."""

    def __init__(self, config: PartialRopeConfig) -> None:
        super().__init__(config, SquaredMLP)


def from_hugging_face(data: ConfigJson) -> PartialRopeConfig:
    """Read config.json, which in older files has the share of a head under another name."""
    data.rename(norm_eps="rms_norm_eps", rope_percent="partial_rotary_factor")
    return PartialRopeConfig(**partial_fields(data, _SHARE, activation="relu2"))


def from_gguf(data: GgufMetadata) -> PartialRopeConfig:
    """Read GGUF metadata."""
    return PartialRopeConfig(**partial_fields_from_gguf(data, _SHARE))


ARCHITECTURE = Architecture(
    name="nemotron",
    config=PartialRopeConfig,
    model_types=("nemotron",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Nemotron,
    tensors=TensorNames(norm_offset=1.0),
)
