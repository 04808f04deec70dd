"""OLMoE: OLMo 2's attention, Llama's blocks, and experts in place of MLPs.

Source: "OLMoE: Open Mixture-of-Experts Language Models" (2024).
"""

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
from hearthd.models.decoder.layers import Block, DecoderModel
from hearthd.models.families.olmo2 import Olmo2Attention

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


class Olmoe(DecoderModel):
    """Blocks that normalize all queries together and all keys together."""

    def __init__(self, config: ExpertsConfig) -> None:
        blocks = [
            Block(config, Olmo2Attention(config), feed_forward(config, layer))
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> ExpertsConfig:
    """Read config.json, in which `intermediate_size` is the width of an expert."""
    data.fixed(clip_qkv=None)
    fields = from_config_json(data)
    return ExpertsConfig(**experts_from_config_json(data, fields, width="intermediate_size"))


def from_gguf(data: GgufMetadata) -> ExpertsConfig:
    """Read GGUF metadata; in llama.cpp the scores of a token's experts are not normalized."""
    return ExpertsConfig(**experts_from_gguf(data, from_gguf_metadata(data)), normalized=False)


ARCHITECTURE = Architecture(
    name="olmoe",
    config=ExpertsConfig,
    model_types=("olmoe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Olmoe,
    tensors=EXPERT_NAMES,
)
