"""LightOnOCR: Qwen3 that reads pages of documents with Pixtral's tower.

Source: "LightOnOCR" (LightOn, 2025), and the model `lighton_ocr` of transformers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.config.decoder_config import from_gguf_metadata
from hearthd.models.families import pixtral, qwen3
from hearthd.models.families.pixtral import Config
from hearthd.models.families.qwen2 import qwen_fields
from hearthd.models.towers import pixtral as towers

if TYPE_CHECKING:
    from hearthd.bundle import GridInput
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


class LightOnOcr(qwen3.Qwen3):
    """Qwen3 with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = towers.Tower(config)
        self.projector = towers.Projector(config, config.hidden, config.norm_eps)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / M, E) of an image: see `pixtral.Tower`."""
        return self.projector(self.tower(patches, places, grid))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    tower = towers.tower_fields(data, data.section("vision_config"))
    return Config(**qwen_fields(data.text_section(tied=None)), **tower)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `qwen3`, and of its projector."""
    text = from_gguf_metadata(data)
    return Config(**text, **pixtral.gguf_tower_fields(data, text["hidden"], "lightonocr"))


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the processor's settings; nothing stands around the rows of an image."""
    token = "<|image_pad|>"
    images = pixtral.image_input(config, data)
    return replace(images, marker=token, placeholder=token, line_end="", end="")


ARCHITECTURE = replace(
    pixtral.ARCHITECTURE,
    name="lightonocr",
    gguf_name="qwen3",
    model_types=("lighton_ocr",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=LightOnOcr,
    images=image_input,
    tensors=replace(
        qwen3.ARCHITECTURE.tensors,
        prefixes=("model.language_model.",),
        towers=towers.tower_names("model.", tower="vision_encoder", projector="vision_projection"),
    ),
)
