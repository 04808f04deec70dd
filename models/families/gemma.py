"""Gemma (1): Llama with GeGLU and scaled embeddings ("Gemma: Open Models", 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.config.gemma_config import gemma_keys
from hearthd.models.decoder.layers import MLP, Attention, Block
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.families.gemma3 import GemmaModel

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


class Gemma(GemmaModel):
    """Blocks of Llama with another activation."""

    def __init__(self, config: DecoderConfig) -> None:
        mlps = (MLP(config, f.gelu_tanh) for _ in range(config.layers))
        super().__init__(config, [Block(config, Attention(config), mlp) for mlp in mlps])


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    gemma_keys(data)
    return DecoderConfig(**from_config_json(data, activation="gelu_pytorch_tanh"))


ARCHITECTURE = Architecture(
    name="gemma",
    config=DecoderConfig,
    model_types=("gemma",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Gemma,
    tensors=TensorNames(norm_offset=1.0),
)
