"""Seed-OSS: Llama with biases of queries, keys and values (ByteDance, 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.families.llama import Llama

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    data.assume(attention_bias=True)
    data.ignore("residual_dropout")
    fields = from_config_json(data)
    return DecoderConfig(**fields | {"output_bias": data.flag("attention_out_bias", default=False)})


ARCHITECTURE = Architecture(
    name="seed_oss",
    config=DecoderConfig,
    model_types=("seed_oss",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Llama,
    tensors=TensorNames(
        gguf={**GGUF_NAMES, "post_attention_layernorm": "post_attention_norm"},
    ),
)
