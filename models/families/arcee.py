"""Arcee (AFM-4.5B): Llama with squared ReLU in place of a gated activation.

Source: the model `arcee` of transformers (2025); the activation is So et al., 2021.
"""

from __future__ import annotations

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import Attention, Block, DecoderModel
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.families.nemotron_h import SquaredMLP


class Arcee(DecoderModel):
    """Llama's blocks with another MLP."""

    def __init__(self, config: DecoderConfig) -> None:
        layers = range(config.layers)
        blocks = [Block(config, Attention(config), SquaredMLP(config)) for _ in layers]
        super().__init__(config, blocks)


ARCHITECTURE = Architecture(
    name="arcee",
    config=DecoderConfig,
    model_types=("arcee",),
    read_config_json=lambda data: DecoderConfig(**from_config_json(data, activation="relu2")),
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Arcee,
    tensors=TensorNames(interleaved=QUERIES_AND_KEYS),
)
