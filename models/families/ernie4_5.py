"""ERNIE 4.5 (dense): Llama, whose folders have the order of rows that llama.cpp rotates.

Source: "ERNIE 4.5 Technical Report" (2025) and the model `ernie4_5` of transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.families.llama import Llama

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json, in which `use_bias` is about every projection."""
    # The defaults of transformers' Ernie4_5Config: files leave out what equals them.
    data.assume(tie_word_embeddings=True, rope_theta=500_000.0, head_dim=128)
    fields = from_config_json(data)
    biases = ("attention_bias", "output_bias", "mlp_bias")
    return DecoderConfig(**fields | dict.fromkeys(biases, data.flag("use_bias", default=False)))


ARCHITECTURE = Architecture(
    name="ernie4_5",
    config=DecoderConfig,
    model_types=("ernie4_5",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Llama,
    tensors=TensorNames(interleaved=QUERIES_AND_KEYS, folder_interleaved=True),
)
