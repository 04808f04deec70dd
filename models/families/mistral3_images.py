"""Ministral 3 and Mistral Small 3 with images: Pixtral's tower in front of the text model.

Source: "Pixtral 12B" (Agrawal et al., 2024), and the model `mistral3` of transformers (2025).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle import GridInput
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.families import mistral3
from hearthd.models.towers import pixtral, siglip

if TYPE_CHECKING:
    from hearthd.models.config import ImageGrid
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(mistral3.Config, pixtral.TowerConfig):
    """The shape of a model."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_layers(parts=4)

    @property
    @override
    def image(self) -> ImageGrid:
        """Images of any size."""
        return self.grid


class Mistral3Images(mistral3.Ministral3):
    """Ministral 3 with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = pixtral.Tower(config)
        self.projector = pixtral.Projector(config, config.hidden, config.norm_eps)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / M, E) of an image: see `pixtral.Tower`."""
        return self.projector(self.tower(patches, places, grid))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    tower = pixtral.tower_fields(data, data.section("vision_config"))
    return Config(**asdict(mistral3.from_hugging_face(data)), **tower)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `mistral3`, and of its projector."""
    text = mistral3.from_gguf(data)
    keys = data.projector("pixtral", text.hidden, "mm.2.weight", axis=0, activation="silu")
    tower = pixtral.gguf_tower_fields(keys, bias=data.has_tensor("mm.1.bias"))
    return Config(**asdict(text), **tower)


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the processor's settings; defaults are the published models' settings."""
    data.ignore("patch_size")  # the processor resizes by the square that gives a row
    edge, step = config.longest_edge, config.patch_size * config.merged_patches
    if data.has("size"):
        edge = data.section("size").size("longest_edge", default=edge)
    return GridInput(
        patch=config.patch_size,
        merged=config.merged_patches,
        min_pixels=1,
        max_pixels=(math.ceil(edge / step) * step) ** 2,
        longest_edge=edge,
        **siglip.pixel_fields(data, "bicubic", siglip.CLIP),
        marker="[IMG]",
        start="",
        placeholder="[IMG]",
        line_end="[IMG_BREAK]",
        end="[IMG_END]",
        axes=1,
    )


ARCHITECTURE = Architecture(
    name="mistral3-images",
    gguf_name="mistral3",
    config=Config,
    model_types=("mistral3",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Mistral3Images,
    images=image_input,
    tensors=replace(
        mistral3.ARCHITECTURE.tensors,
        # The converter copies the row of this token for llama.cpp's tower.
        others=("v.token_embd.img_break",),
        towers=pixtral.tower_names("model.", ""),
    ),
)
