"""openPangu-Embedded: Llama with biases in attention ("Pangu Embedded", 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
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
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json; attention without biases, as llama.cpp too, is not supported."""
    data.rename(bias="attention_bias")
    data.fixed(attention_bias=True)
    return DecoderConfig(**from_config_json(data))


def from_gguf(data: GgufMetadata) -> DecoderConfig:
    """Read GGUF metadata."""
    fields = from_gguf_metadata(data)
    if not fields["output_bias"]:
        raise ConfigError("pangu-embedded: supported is attention with biases")
    return DecoderConfig(**fields)


ARCHITECTURE = Architecture(
    name="pangu-embedded",
    config=DecoderConfig,
    model_types=("PanguEmbedded",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Llama,
    tensors=TensorNames(),
)
