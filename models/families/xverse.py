"""XVERSE: Llama under another name (XVERSE Technology, 2023)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_config_json
from hearthd.models.families import llama

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    data.ignore("max_tokenizer_truncation")
    return DecoderConfig(**from_config_json(data))


ARCHITECTURE = replace(
    llama.ARCHITECTURE,
    name="xverse",
    model_types=("xverse",),
    read_config_json=from_hugging_face,
)
