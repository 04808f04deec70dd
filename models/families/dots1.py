"""dots.llm1: normalized heads, and the experts of GLM-4.5.

Source: "dots.llm1 Technical Report" (2025) and the model `dots1` of transformers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_gguf_metadata
from hearthd.models.decoder.experts import EXPERT_FOLDER_NAMES, EXPERT_NAMES, ExpertsConfig
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families.glm4moe import (
    CORRECTION,
    corrected_experts,
    corrected_experts_from_gguf,
)
from hearthd.models.families.qwen2 import qwen_fields
from hearthd.models.families.qwen3moe import Qwen3Moe

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_OF_FIRST_FILES = "noaux_tc"  # which names sigmoids by how their corrections are trained


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json."""
    data.assume(first_k_dense_replace=0, norm_topk_prob=False)
    data.fixed(use_sliding_window=False, moe_layer_freq=1)
    scores = data.text("scoring_func", default=SIGMOID)
    if scores not in (SIGMOID, _OF_FIRST_FILES):
        raise ConfigError(f"scoring_func: got {scores!r:.80}, supported: {SIGMOID}")
    return ExpertsConfig(**corrected_experts(data, qwen_fields(data)))


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata."""
    return ExpertsConfig(**corrected_experts_from_gguf(data, from_gguf_metadata(data)))


ARCHITECTURE = Architecture(
    name="dots1",
    config=ExpertsConfig,
    model_types=("dots1",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen3Moe,
    tensors=replace(EXPERT_NAMES, folder={**EXPERT_FOLDER_NAMES, **CORRECTION}),
)
