"""Qwen2.5-VL with images: a tower for images of any size, and rotary positions of three axes.

Source: "Qwen2.5-VL Technical Report" (Bai et al., 2025), and the model `qwen2_5_vl` of
transformers. Rows of an image have positions as in Qwen3.5, by other columns of a head: see
qwen35_images.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.image_positions import AXES, AxesConfig, AxesModel
from hearthd.models.families import qwen2vl
from hearthd.models.families.llama import Llama
from hearthd.models.families.qwen35_images import grid_input
from hearthd.models.towers import qwen3vl, qwen25vl, siglip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.bundle import GridInput
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.tensor_names import TensorNames
    from hearthd.models.dsl.graph import Tensor

_TYPE = "qwen2.5vl_merger"
_SECTIONS = (16, 24, 24)
_LIMITS = 4 * 28**2, 2**14 * 28**2  # pixels of the smallest and the largest image


@dataclass(frozen=True, kw_only=True)
class Config(AxesConfig, qwen25vl.TowerConfig):
    """The shape of a model."""


class Qwen25VlImages(AxesModel, Llama):
    """Qwen2.5 with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = qwen25vl.Tower(config)
        self.merger = qwen3vl.Merger(config, config.hidden)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / M, E) of an image: see `qwen3vl.Tower`."""
        return self.merger(self.tower(patches, places, grid))


def text_and_sections(data: ConfigJson) -> dict[str, Any]:
    """The fields of `AxesConfig` but the tower's, from config.json.

    In older files, the text model has no section of its own.
    """
    text = asdict(qwen2vl.from_hugging_face(data))
    section, _ = (data.section("text_config") if data.has("text_config") else data).rope_section()
    return {**text, "rope_sections": tuple(section.counts("mrope_section", default=_SECTIONS))}


def gguf_text_and_sections(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `AxesConfig` but the tower's, from metadata."""
    text = asdict(qwen2vl.from_gguf(data))
    sections = tuple(data.counts("rope.dimension_sections", default=_SECTIONS))[:AXES]
    return {**text, "rope_sections": sections}


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    fields = text_and_sections(data)
    vision = qwen25vl.tower_fields(data.section("vision_config"), fields["hidden"])
    return Config(**fields, **vision)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `qwen2vl`, and of its projector."""
    fields = gguf_text_and_sections(data)
    keys = data.projector(_TYPE, fields["hidden"], "mm.2.weight", axis=0, activation="silu")
    return Config(**fields, **qwen25vl.gguf_tower_fields(keys))


def image_input(config: AxesConfig, data: ConfigJson) -> GridInput:
    """Read the processor's settings; defaults are the published models' settings."""
    return grid_input(config, data, _LIMITS, siglip.CLIP)


def names_with(towers: Mapping[str, TensorNames]) -> TensorNames:
    """The names of the text model's tensors, and of a tower's."""
    return replace(qwen2vl.NAMES_BESIDE_TOWER, others=(), towers=towers)


ARCHITECTURE = Architecture(
    name="qwen25vl-images",
    gguf_name="qwen2vl",
    config=Config,
    model_types=("qwen2_5_vl",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen25VlImages,
    images=image_input,
    tensors=names_with(qwen25vl.tower_names("model.visual.", "visual.")),
)
