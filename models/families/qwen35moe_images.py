"""Qwen3.5 with experts and images.

Source: the model `qwen3_5_moe` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.families import qwen35_images, qwen35moe
from hearthd.models.families.qwen35_images import (
    Qwen35Images,
    gguf_image_fields,
    image_fields,
    with_tower,
)
from hearthd.models.families.qwen35moe import Qwen35Moe

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


@dataclass(frozen=True, kw_only=True)
class Config(qwen35_images.Config, qwen35moe.Config):
    """The shape of a model."""

    by_layer = qwen35moe.Config.by_layer


class Qwen35MoeImages(Qwen35Images, Qwen35Moe):
    """Qwen3.5's blocks with experts and a tower."""


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    text = qwen35moe.fields_from_hugging_face(data.text_section(tied=None))
    return Config(**text, **image_fields(data, text["hidden"]))


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `qwen35moe`, and of its projector."""
    text = qwen35moe.fields_from_gguf(data)
    return Config(**text, **gguf_image_fields(data, text["hidden"]))


ARCHITECTURE = with_tower(
    qwen35moe.ARCHITECTURE,
    name="qwen35moe-images",
    gguf_name="qwen35moe",
    config=Config,
    model_types=("qwen3_5_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen35MoeImages,
)
