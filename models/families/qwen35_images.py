"""Qwen3.5 with images: a tower for images of any size, and rotary positions of three axes.

Source: "Qwen3-VL Technical Report" (2025), and the model `qwen3_5` of transformers (2026). A row of
an image has the position where the image begins, and its row and column in the image added to it.
The text after an image goes on after the largest of these (M-RoPE).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.bundle import GridInput
from hearthd.models.config import ConfigError
from hearthd.models.decoder.image_positions import AXES, AxesConfig, InterleavedAxesModel
from hearthd.models.families import qwen35
from hearthd.models.towers import qwen3vl, siglip
from hearthd.models.towers.tower_config import GridConfig, TableConfig

if TYPE_CHECKING:
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

_SECTIONS = (11, 11, 10)


@dataclass(frozen=True, kw_only=True)
class Config(qwen35.Config, AxesConfig, TableConfig):
    """The shape of a model."""

    @property
    @override
    def rotary_columns(self) -> int:
        return self.rotary_width


class Qwen35Images(InterleavedAxesModel, qwen35.Qwen35):
    """Qwen3.5's blocks with a tower."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = qwen3vl.Tower(config)
        self.merger = qwen3vl.Merger(config, config.hidden)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / M, E) of an image: see `qwen3vl.Tower`."""
        return self.merger(self.tower(patches, places, grid))


def image_fields(data: ConfigJson, hidden: int) -> dict[str, Any]:
    """The fields of `Config` that text models lack, from config.json; raises ConfigError."""
    section, _ = data.section("text_config").rope_section()
    section.fixed(mrope_interleaved=True)
    sections = tuple(section.counts("mrope_section", default=_SECTIONS))
    vision = data.section("vision_config")
    vision.fixed(deepstack_visual_indexes=[])
    return {**qwen3vl.tower_fields(vision, hidden), "rope_sections": sections}


def gguf_image_fields(data: GgufMetadata, hidden: int) -> dict[str, Any]:
    """The fields of `Config` that text models lack, from metadata; raises ConfigError."""
    sections, keys = sections_and_projector(data, hidden, _SECTIONS)
    if True in keys.flags("vision.is_deepstack_layers"):
        raise ConfigError("clip.vision.is_deepstack_layers: got true, supported is false")
    return {**qwen3vl.gguf_tower_fields(keys), "rope_sections": sections}


def sections_and_projector(
    data: GgufMetadata, hidden: int, usual: tuple[int, ...]
) -> tuple[tuple[int, ...], ProjectorMetadata]:
    """The sections of columns by axis, by default the `usual` ones, and the projector's keys."""
    sections = data.counts("rope.dimension_sections", default=usual)
    keys = data.projector("qwen3vl_merger", hidden, "mm.2.weight", axis=0)
    return tuple(sections[:AXES]), keys


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    text = qwen35.fields_from_hugging_face(data.text_section(tied=None))
    return Config(**text, **image_fields(data, text["hidden"]))


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `qwen35`, and of its projector."""
    text = qwen35.fields_from_gguf(data)
    return Config(**text, **gguf_image_fields(data, text["hidden"]))


def image_input(config: GridConfig, data: ConfigJson) -> GridInput:
    """Read the processor's settings; defaults are the published models' settings."""
    return grid_input(config, data, (2**16, 2**24), siglip.HALF)


def grid_input(
    config: GridConfig,
    data: ConfigJson,
    usual: tuple[int, int],
    pixels: tuple[tuple[float, ...], ...],
) -> GridInput:
    """Read the settings of Qwen's processor.

    By default, areas are within the `usual` limits, and `pixels` is the normalization.
    """
    data.fixed(
        patch_size=config.patch_size, merge_size=config.merged_patches,
        temporal_patch_size=qwen3vl.FRAMES,
    )  # fmt: skip
    limits = data.section("size") if data.has("size") else data
    names = ("shortest_edge", "longest_edge") if data.has("size") else ("min_pixels", "max_pixels")
    smallest, largest = (
        limits.size(name, default=default) for name, default in zip(names, usual, strict=True)
    )
    return GridInput(
        patch=config.patch_size,
        merged=config.merged_patches,
        min_pixels=smallest,
        max_pixels=largest,
        **siglip.pixel_fields(data, "bicubic", pixels),
        marker="<|vision_start|><|image_pad|><|vision_end|>",
        start="<|vision_start|>",
        placeholder="<|image_pad|>",
        end="<|vision_end|>",
        axes=AXES,
    )


def with_tower(architecture: Architecture[Any], **changes: Any) -> Architecture[Any]:
    """A text model's architecture, with the names of a tower."""
    towers = qwen3vl.tower_names("model.visual.", "visual.")
    tensors = replace(architecture.tensors, others=("mtp.",), towers=towers)
    return replace(architecture, tensors=tensors, images=image_input, **changes)


ARCHITECTURE = with_tower(
    qwen35.ARCHITECTURE,
    name="qwen35-images",
    gguf_name="qwen35",
    config=Config,
    model_types=("qwen3_5",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen35Images,
)
