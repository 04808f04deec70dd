"""Qwen2-VL and Qwen2.5-VL (text): Qwen2.5, whose positions in images have several axes.

Source: "Qwen2.5-VL Technical Report" (2025).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_gguf_metadata
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families import qwen2
from hearthd.models.families.qwen2 import qwen_fields

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

NAMES_BESIDE_TOWER = TensorNames(
    prefixes=("model.", "", "model.language_model."), others=("visual.",)
)


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json; in older files, the text model has no section of its own."""
    if not data.has("text_config"):
        data.ignore("vision_config", "image_token_id", "video_token_id", "vision_token_id")
        data.ignore("vision_start_token_id", "vision_end_token_id")
    fields = qwen_fields(data.text_section(tied=None), rope_scaling.of_text)
    return DecoderConfig(**fields | {"attention_bias": True})


def from_gguf(data: GgufMetadata) -> DecoderConfig:
    """Read GGUF metadata."""
    data.ignore("rope.dimension_sections", "n_deepstack_layers")
    return DecoderConfig(**from_gguf_metadata(data))


ARCHITECTURE = replace(
    qwen2.ARCHITECTURE,
    name="qwen2vl",
    model_types=("qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl", "qwen2_vl_text"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    tensors=NAMES_BESIDE_TOWER,
)
