"""Orion 14B: the layers of StableLM, where all columns of a head turn.

Source: "Orion-14B: Open-source Multilingual Large Language Models" (2024).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.families import stablelm

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


def from_hugging_face(data: ConfigJson) -> PartialRopeConfig:
    """Read config.json, where `rms_norm_eps` is the epsilon of LayerNorm."""
    return PartialRopeConfig(**partial_fields(data, usual=1.0))


ARCHITECTURE = replace(
    stablelm.ARCHITECTURE,
    name="orion",
    model_types=("orion",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: PartialRopeConfig(**partial_fields_from_gguf(data, usual=1.0)),
)
