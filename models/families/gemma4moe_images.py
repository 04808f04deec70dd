"""Gemma 4 with experts and images.

Source: the model `gemma4` of transformers (2026), with `enable_moe_block`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.config import OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.families import gemma4_images, gemma4moe

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


@dataclass(frozen=True, kw_only=True)
class Config(gemma4_images.Config, gemma4moe.Config):
    """The shape of a model."""

    by_layer = gemma4moe.Config.by_layer


class Gemma4MoeImages(gemma4_images.ReadsPatches, gemma4moe.Gemma4Moe):
    """Gemma 4 with experts and a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.add_tower(config)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    section = data.text_section()
    text = gemma4moe.fields_from_hugging_face(section)
    return Config(**text, **gemma4_images.image_fields(data, section))


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `gemma4`, and of its projector."""
    if not data.count("expert_count", default=0):
        raise OtherFamily("gemma4.expert_count: supported are models with experts")
    text = gemma4moe.fields_from_gguf(data)
    return Config(**text, **gemma4_images.gguf_image_fields(data, text))


ARCHITECTURE = Architecture(
    name="gemma4-moe-images",
    gguf_name="gemma4",
    config=Config,
    model_types=("gemma4",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma4MoeImages,
    images=gemma4_images.image_input,
    tensors=gemma4_images.tensors_with_tower(gemma4moe.ARCHITECTURE.tensors),
)
