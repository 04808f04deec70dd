"""Llama and Mistral.

Source: "Llama 2: Open Foundation and Fine-Tuned Chat Models" (2023), "Mistral 7B" (2023), and the
reference implementation meta-llama/llama. SmolLM2 and many others are of this architecture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
    windows_by_type,
)
from hearthd.models.decoder.layers import MLP, Attention, Block, DecoderModel
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


class Llama(DecoderModel):
    """The layers as `models/decoder/layers.py` has them."""

    def __init__(self, config: DecoderConfig) -> None:
        blocks = [Block(config, Attention(config), MLP(config)) for _ in range(config.layers)]
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json. InternLM 3 has keys for biases.

    Mistral's window holds for every layer, or for those that `layer_types` says.
    """
    data.rename(bias="mlp_bias", qkv_bias="attention_bias")
    data.fixed(clip_qkv=None, use_sliding_window=False)
    fields = from_config_json(data)
    slides = data.size("sliding_window", default=None) is not None
    return DecoderConfig(**fields, windows=windows_by_type(data, [slides] * fields["layers"]))


ARCHITECTURE = Architecture(
    name="llama",
    config=DecoderConfig,
    model_types=("llama", "mistral", "ministral", "internlm3", "iquestcoder"),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Llama,
    tensors=TensorNames(interleaved=QUERIES_AND_KEYS),
)
