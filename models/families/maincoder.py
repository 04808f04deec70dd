"""Maincoder: Hunyuan's blocks, whose heads are normalized after rotation; neighbors turn together.

Source: llama.cpp (2026); transformers has no such model.
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
from hearthd.models.families.hunyuan import Hunyuan

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    data.fixed(use_qk_norm=True)
    return DecoderConfig(**from_config_json(data))


ARCHITECTURE = Architecture(
    name="maincoder",
    config=DecoderConfig,
    model_types=("maincoder",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Hunyuan,
    tensors=TensorNames(
        interleaved=(*QUERIES_AND_KEYS, "self_attn.q_norm", "self_attn.k_norm"),
        folder_interleaved=True,
    ),
)
