"""Qwen2-VL with images: Qwen2.5-VL with an older tower, without windows.

Source: "Qwen2-VL" (Wang et al., 2024), and the model `qwen2_vl` of transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.image_positions import AxesConfig, AxesModel
from hearthd.models.families.llama import Llama
from hearthd.models.families.qwen25vl_images import (
    gguf_text_and_sections,
    image_input,
    names_with,
    text_and_sections,
)
from hearthd.models.towers import qwen2vl, qwen3vl

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_TYPE = "qwen2vl_merger"


class Qwen2VlImages(AxesModel, Llama):
    """Qwen2 with a tower."""

    def __init__(self, config: AxesConfig) -> None:
        super().__init__(config)
        self.tower = qwen2vl.Tower(config)
        self.merger = qwen3vl.Merger(config, config.hidden)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / M, E) of an image: see `qwen3vl.Tower`."""
        return self.merger(self.tower(patches, places, grid))


def from_hugging_face(data: ConfigJson) -> AxesConfig:
    """Read config.json; in older files, the text model has no section of its own."""
    fields = text_and_sections(data)
    vision = qwen2vl.tower_fields(data.section("vision_config"), fields["hidden"])
    return AxesConfig(**fields, **vision)


def from_gguf(data: GgufMetadata) -> AxesConfig:
    """Read the metadata of a text model, `qwen2vl`, and of its projector."""
    fields = gguf_text_and_sections(data)
    keys = data.projector(_TYPE, fields["hidden"], "mm.2.weight", axis=0, activation="quick_gelu")
    ffn = data.rows("v.blk.0.ffn_up.weight")
    return AxesConfig(**fields, **qwen2vl.gguf_tower_fields(keys, ffn))


ARCHITECTURE = Architecture(
    name="qwen2vl-images",
    gguf_name="qwen2vl",
    config=AxesConfig,
    model_types=("qwen2_vl",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen2VlImages,
    images=image_input,
    tensors=names_with(qwen2vl.tower_names("model.visual.", "visual.")),
)
