"""GLM-4.1V and GLM-4.6V-Flash: GLM-4 that reads images of any size.

Source: "GLM-4.5V and GLM-4.1V-Thinking" (2025), and the models `glm4v` and `glm46v` of
transformers. Rows of an image have rotary positions of three axes, by consecutive sections of the
columns that turn (M-RoPE: see qwen25vl_images.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.bundle import GridInput
from hearthd.models.decoder.image_positions import AXES, AxesConfig, AxesModel
from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    PartialRopeModel,
)
from hearthd.models.families import glm4v
from hearthd.models.towers import glm4v as towers
from hearthd.models.towers import glm_ocr, qwen3vl, siglip

if TYPE_CHECKING:
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

_LIMITS = 112**2, 28**2 * 15000  # pixels of both frames of the smallest and the largest image


@dataclass(frozen=True, kw_only=True)
class PartialAxesConfig(AxesConfig, PartialRopeConfig):
    """The shape of a text model."""

    @property
    @override
    def rotary_columns(self) -> int:
        return self.rotary_width


@dataclass(frozen=True, kw_only=True)
class VisionConfig(PartialAxesConfig, towers.TowerConfig):
    """The shape of a model."""


class TowerReader(AxesModel, PartialRopeModel):
    """A text model with a tower."""

    config: PartialAxesConfig
    tower: towers.Tower | glm_ocr.Tower
    merger: towers.Merger

    def add_tower(self, config: VisionConfig) -> None:
        """Add the tower."""
        self.tower = towers.Tower(config)
        self.merger = towers.Merger(config, config.hidden)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / M, E) of an image: see `qwen3vl.Tower`."""
        return self.merger(self.tower(patches, places, grid))


class Glm4vImages(TowerReader, glm4v.Glm4v):
    """GLM-4 with a tower."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__(config)
        self.add_tower(config)


def image_fields(data: ConfigJson, hidden: int) -> dict[str, Any]:
    """The fields of `VisionConfig` that text models lack, from config.json; raises ConfigError."""
    tower = towers.tower_fields(data.section("vision_config"), hidden)
    return {**tower, "rope_sections": sections_of(data)}


def sections_of(data: ConfigJson) -> tuple[int, ...]:
    """The pairs of columns that turn by each axis, from config.json."""
    section, _ = data.section("text_config").rope_section()
    return tuple(section.counts("mrope_section", default=glm4v.SECTIONS))


def gguf_image_fields(data: GgufMetadata, hidden: int) -> dict[str, Any]:
    """The fields of `VisionConfig` that text models lack, from metadata; raises ConfigError."""
    keys = projector(data, hidden)
    return {**towers.gguf_tower_fields(keys, hidden), "rope_sections": gguf_sections_of(data)}


def projector(data: GgufMetadata, hidden: int) -> ProjectorMetadata:
    """The keys of a projector's GGUF file; raises ConfigError."""
    return data.projector("glm4v", hidden, "mm.model.fc.weight", axis=0, activation="silu")


def gguf_sections_of(data: GgufMetadata) -> tuple[int, ...]:
    """As `sections_of`, from metadata."""
    return tuple(glm4v.gguf_sections(data))[:AXES]


def from_hugging_face(data: ConfigJson) -> VisionConfig:
    """Read config.json."""
    fields = glm4v.text_fields(data)
    return VisionConfig(**fields, **image_fields(data, fields["hidden"]))


def from_gguf(data: GgufMetadata) -> VisionConfig:
    """Read the metadata of a text model, `glm4`, and of its projector."""
    fields = glm4v.gguf_text_fields(data)
    return VisionConfig(**fields, **gguf_image_fields(data, fields["hidden"]))


def image_input(config: VisionConfig, data: ConfigJson) -> GridInput:
    """Read the processor's settings; defaults are the published models' settings.

    Its limits are of both frames that an image is repeated in.
    """
    data.fixed(
        patch_size=config.patch_size, merge_size=config.merged_patches,
        temporal_patch_size=qwen3vl.FRAMES,
    )  # fmt: skip
    smallest, largest = _LIMITS
    if data.has("size"):
        limits = data.section("size")
        smallest = limits.size("shortest_edge", default=smallest)
        largest = limits.size("longest_edge", default=largest)
    return GridInput(
        patch=config.patch_size,
        merged=config.merged_patches,
        min_pixels=math.ceil(smallest / qwen3vl.FRAMES),
        max_pixels=largest // qwen3vl.FRAMES,
        keeps_thin=True,
        **siglip.pixel_fields(data, "bicubic", siglip.CLIP),
        marker="<|begin_of_image|><|image|><|end_of_image|>",
        start="<|begin_of_image|>",
        placeholder="<|image|>",
        end="<|end_of_image|>",
        axes=AXES,
    )


def with_tower(architecture: Architecture[Any], **changes: Any) -> Architecture[Any]:
    """A text model's architecture, with the names of a tower."""
    names = towers.tower_names("model.visual.", "visual.")
    tensors = replace(
        architecture.tensors, prefixes=("model.language_model.",), others=(), towers=names
    )
    changes = {"gguf_name": architecture.name, "images": image_input, **changes}
    return replace(architecture, tensors=tensors, **changes)


ARCHITECTURE = with_tower(
    glm4v.ARCHITECTURE,
    name="glm4v-images",
    gguf_name="glm4",
    config=VisionConfig,
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Glm4vImages,
)
