"""Nemotron-4 and Minitron: LayerNorm, squared ReLU; half of each head turns.

Source: "Nemotron-4 15B Technical Report" (2024), "LLM Pruning and Distillation" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.partial_rope import (
    LayerNormModel,
    PartialRopeConfig,
    partial_rope,
    rotary_width_from_gguf,
    turning_share,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families.nemotron_h import SquaredMLP

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope

_SHARE = 0.5  # of the columns of a head that turn


class Nemotron(LayerNormModel):
    """Blocks with squared ReLU."""

    def __init__(self, config: PartialRopeConfig) -> None:
        super().__init__(config, SquaredMLP)


def from_hugging_face(data: ConfigJson) -> PartialRopeConfig:
    """Read config.json, which in older files has the share of a head under another name."""
    data.rename(norm_eps="rms_norm_eps", rope_percent="partial_rotary_factor")
    fields = from_config_json(data, _rope, activation="relu2")
    width = int(fields["head_dim"] * turning_share(data, _SHARE))
    return PartialRopeConfig(**fields, rotary_width=width)


def _rope(data: ConfigJson, head_dim: int, max_context: int) -> Rope:
    return partial_rope(data, head_dim, max_context, _SHARE)


def from_gguf(data: GgufMetadata) -> PartialRopeConfig:
    """Read GGUF metadata."""
    width = rotary_width_from_gguf(data, _SHARE)
    return PartialRopeConfig(**from_gguf_metadata(data, rope_width=width), rotary_width=width)


ARCHITECTURE = Architecture(
    name="nemotron",
    config=PartialRopeConfig,
    model_types=("nemotron",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Nemotron,
    tensors=TensorNames(norm_offset=1.0),
)
