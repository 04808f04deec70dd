"""Jais 2: the layers of Nemotron-4, where all columns of a head turn.

Source: the model `jais2` of transformers (Inception, 2025).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.families import nemotron

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


def from_hugging_face(data: ConfigJson) -> PartialRopeConfig:
    """Read config.json."""
    data.rename(layer_norm_eps="rms_norm_eps")
    data.assume(rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True)
    return PartialRopeConfig(**partial_fields(data, usual=1.0, activation="relu2"))


ARCHITECTURE = replace(
    nemotron.ARCHITECTURE,
    name="jais2",
    model_types=("jais2",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: PartialRopeConfig(**partial_fields_from_gguf(data, usual=1.0)),
    tensors=replace(nemotron.ARCHITECTURE.tensors, norm_offset=0.0),
)
