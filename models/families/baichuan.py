"""Baichuan 7B: Llama with one tensor of queries, keys and values (Baichuan, 2023)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.tensor_names import QUERIES_KEYS_VALUES
from hearthd.models.families import llama

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_LAYERS_WITH_ALIBI = 40  # of the 13B; as in llama.cpp, no key says it


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json. Baichuan 2, whose head is normalized, has keys that are not read."""
    return _rotary(DecoderConfig(**from_config_json(data)))


def from_gguf(data: GgufMetadata) -> DecoderConfig:
    """Read GGUF metadata. As in llama.cpp, the head of Baichuan 2 is read as a file has it."""
    return _rotary(DecoderConfig(**from_gguf_metadata(data)))


def _rotary(config: DecoderConfig) -> DecoderConfig:
    """The configuration; raises ConfigError for one without rotary positions."""
    if config.layers == _LAYERS_WITH_ALIBI:
        raise ConfigError("Baichuan 13B, whose positions are ALiBi, is not supported, only 7B")
    return config


ARCHITECTURE = replace(
    llama.ARCHITECTURE,
    name="baichuan",
    model_types=("baichuan",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    tensors=replace(llama.ARCHITECTURE.tensors, joined={"self_attn.W_pack": QUERIES_KEYS_VALUES}),
)
