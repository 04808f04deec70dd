"""Ministral 3 and Mistral Small 3 with images: Pixtral's tower in front of the text model.

Source: "Pixtral 12B" (Agrawal et al., 2024), and the model `mistral3` of transformers (2025).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.families import mistral3, pixtral
from hearthd.models.towers import pixtral as towers

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(mistral3.Config, pixtral.Config):
    """The shape of a model."""


class Mistral3Images(mistral3.Ministral3):
    """Ministral 3 with a tower."""

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
    return Config(**asdict(mistral3.from_hugging_face(data)), **tower)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `mistral3`, and of its projector."""
    text = mistral3.from_gguf(data)
    return Config(**asdict(text), **pixtral.gguf_tower_fields(data, text.hidden))


ARCHITECTURE = Architecture(
    name="mistral3-images",
    gguf_name="mistral3",
    config=Config,
    model_types=("mistral3",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Mistral3Images,
    images=pixtral.image_input,
    tensors=pixtral.names_with_tower(mistral3.ARCHITECTURE),
)
