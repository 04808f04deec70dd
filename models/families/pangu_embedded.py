"""openPangu-Embedded: Llama with biases in attention ("Pangu Embedded", 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families.llama import Llama

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json, which says under `bias` whether attention has biases."""
    data.rename(bias="attention_bias")
    return DecoderConfig(**from_config_json(data))


ARCHITECTURE = Architecture(
    name="pangu-embedded",
    config=DecoderConfig,
    model_types=("PanguEmbedded",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Llama,
    tensors=TensorNames(),
)
