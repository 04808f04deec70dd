"""Qwen3-VL with experts and images.

Source: "Qwen3-VL Technical Report" (2025), and the model `qwen3_vl_moe` of transformers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.families import qwen3moe, qwen3vl_images, qwen3vlmoe
from hearthd.models.families.qwen3vl_images import (
    DeepStackReader,
    gguf_image_fields,
    image_fields,
    with_tower,
)

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


@dataclass(frozen=True, kw_only=True)
class Config(qwen3vl_images.Config, ExpertsConfig):
    """The shape of a model."""


class Qwen3VlMoeImages(DeepStackReader, qwen3moe.Qwen3Moe):
    """Qwen3-MoE with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.add_tower(config)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    text = asdict(qwen3vlmoe.from_hugging_face(data))
    return Config(**text, **image_fields(data, text["hidden"]))


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `qwen3vlmoe`, and of its projector."""
    text = asdict(qwen3vlmoe.from_gguf(data))
    return Config(**text, **gguf_image_fields(data, text["hidden"]))


ARCHITECTURE = with_tower(
    qwen3vlmoe.ARCHITECTURE,
    name="qwen3vlmoe-images",
    config=Config,
    model_types=("qwen3_vl_moe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen3VlMoeImages,
)
