"""Qwen3-MoE: Qwen3 with experts in place of MLPs ("Qwen3 Technical Report", 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.experts import (
    EXPERT_NAMES,
    ExpertsConfig,
    experts_from_config_json,
    experts_from_gguf,
    feed_forward,
)
from hearthd.models.decoder.layers import Block, DecoderModel, NormedAttention

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


class Qwen3Moe(DecoderModel):
    """Blocks with normalized heads, and experts or an MLP."""

    def __init__(self, config: ExpertsConfig) -> None:
        blocks = [
            Block(config, NormedAttention(config), feed_forward(config, layer))
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json. A window holds for every layer."""
    data.ignore("max_window_layers")
    fields = from_config_json(data)
    slides = data.flag("use_sliding_window", default=False)
    window = data.size("sliding_window", default=None)
    windows = (window,) * fields["layers"] if slides and window else ()
    return ExpertsConfig(**experts_from_config_json(data, fields), windows=windows)


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata; in llama.cpp the scores of a token's experts are normalized."""
    return ExpertsConfig(**experts_from_gguf(data, from_gguf_metadata(data)), normalized=True)


ARCHITECTURE = Architecture(
    name="qwen3moe",
    config=ExpertsConfig,
    model_types=("qwen3_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen3Moe,
    tensors=EXPERT_NAMES,
)
