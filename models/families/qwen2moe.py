"""Qwen2-MoE and Qwen1.5-MoE: Qwen 2 with experts, and a shared MLP with a gate.

Source: "Qwen1.5-MoE" (2024), "Qwen2 Technical Report" (2024).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_NAMES,
    ExpertsConfig,
    experts_from_config_json,
    experts_from_gguf,
)
from hearthd.models.families.deepseek import DeepseekMoe
from hearthd.models.families.qwen35moe import SHARED_NAMES

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_SHARED = {"attention_bias": True, "shared_gate": True}


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json."""
    data.fixed(use_sliding_window=False, qkv_bias=True)
    data.ignore("layer_types", "max_window_layers", "sliding_window")
    shared = data.size("shared_expert_intermediate_size")
    fields = experts_from_config_json(data, from_config_json(data))
    return ExpertsConfig(**fields | _SHARED | {"shared_ffn": shared})


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata; in llama.cpp the scores of a token's experts are not normalized."""
    width = data.size("feed_forward_length", default=data.size("expert_feed_forward_length"))
    fields = experts_from_gguf(data, from_gguf_metadata(data, ffn=width))
    return ExpertsConfig(**fields | _SHARED, normalized=False)


ARCHITECTURE = Architecture(
    name="qwen2moe",
    config=ExpertsConfig,
    model_types=("qwen2_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=DeepseekMoe,
    tensors=replace(EXPERT_NAMES, folder={**EXPERT_FOLDER_NAMES, **SHARED_NAMES}),
)
