"""Qwen3-VL (text): Qwen3, whose positions in images have several axes.

Source: "Qwen3-VL Technical Report" (2025).
"""

from __future__ import annotations

from dataclasses import replace

from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.families import qwen3
from hearthd.models.families.qwen2 import qwen_fields
from hearthd.models.families.qwen2vl import NAMES_BESIDE_TOWER, from_gguf

ARCHITECTURE = replace(
    qwen3.ARCHITECTURE,
    name="qwen3vl",
    model_types=("qwen3_vl", "qwen3_vl_text"),
    read_config_json=lambda data: DecoderConfig(
        **qwen_fields(data.text_section(tied=None), rope_scaling.of_text)
    ),
    read_gguf=from_gguf,
    tensors=NAMES_BESIDE_TOWER,
)
