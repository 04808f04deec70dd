"""GLM-OCR: a small GLM-4 that reads images of documents, as GLM-4.1V does.

Source: the model `glm_ocr` of transformers. Its layer that predicts further tokens is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.config import OtherFamily
from hearthd.models.families import glm4v
from hearthd.models.families.glm4v_images import (
    PartialAxesConfig,
    TowerReader,
    gguf_sections_of,
    projector,
    sections_of,
    with_tower,
)
from hearthd.models.towers import glm_ocr as towers
from hearthd.models.towers.glm4v import Merger, MergerConfig

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


@dataclass(frozen=True, kw_only=True)
class Config(PartialAxesConfig, MergerConfig):
    """The shape of a model."""


class GlmOcr(TowerReader, glm4v.Glm4v):
    """GLM-4 with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = towers.Tower(config)
        self.merger = Merger(config, config.hidden)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    fields = glm4v.text_fields(data, kind="glm_ocr_text", bias=False)
    tower = towers.tower_fields(data.section("vision_config"), fields["hidden"])
    return Config(**fields, **tower, rope_sections=sections_of(data))


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `glm4`, and of its projector.

    Raises OtherFamily for GLM-4.1V's.
    """
    if data.has_tensor("v.position_embd.weight"):
        raise OtherFamily("the projector has learned positions: it is GLM-4.1V's")
    fields = glm4v.gguf_text_fields(data)
    tower = towers.gguf_tower_fields(projector(data, fields["hidden"]), fields["hidden"])
    return Config(**fields, **tower, rope_sections=gguf_sections_of(data))


ARCHITECTURE = with_tower(
    glm4v.ARCHITECTURE,
    name="glm-ocr",
    gguf_name="glm4",
    config=Config,
    model_types=("glm_ocr",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=GlmOcr,
)
