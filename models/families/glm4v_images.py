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
from hearthd.models.config import OtherFamily
from hearthd.models.decoder.image_positions import AXES, AxesConfig, AxesModel
from hearthd.models.decoder.layers import Attention, FusedMLP
from hearthd.models.decoder.partial_rope import (
    PartialRopeConfig,
    PartialRopeModel,
    partial_fields,
    partial_fields_from_gguf,
)
from hearthd.models.families import glm4
from hearthd.models.families.gemma3 import GemmaBlock
from hearthd.models.towers import glm4v, qwen3vl, siglip

if TYPE_CHECKING:
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

SHARE = 0.5  # of the columns of a head that turn
_SECTIONS = (8, 12, 12)
_LIMITS = 112**2, 28**2 * 15000  # pixels of both frames of the smallest and the largest image


@dataclass(frozen=True, kw_only=True)
class VisionConfig(AxesConfig, PartialRopeConfig, glm4v.TowerConfig):
    """The shape of a model."""

    @property
    @override
    def rotary_columns(self) -> int:
        return self.rotary_width


class TowerReader(AxesModel, PartialRopeModel):
    """A text model with a tower."""

    config: VisionConfig

    def add_tower(self, config: VisionConfig) -> None:
        """Add the tower."""
        self.tower = glm4v.Tower(config)
        self.merger = glm4v.Merger(config, config.hidden)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / M, E) of an image: see `qwen3vl.Tower`."""
        return self.merger(self.tower(patches, places, grid))


class Glm4vImages(TowerReader):
    """GLM-4 with a tower."""

    def __init__(self, config: VisionConfig) -> None:
        blocks = [
            GemmaBlock(config, Attention(config), FusedMLP(config)) for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.add_tower(config)


def image_fields(data: ConfigJson, hidden: int) -> dict[str, Any]:
    """The fields of `VisionConfig` that text models lack, from config.json; raises ConfigError."""
    section, _ = data.section("text_config").rope_section()
    sections = tuple(section.counts("mrope_section", default=_SECTIONS))
    tower = glm4v.tower_fields(data.section("vision_config"), hidden)
    return {**tower, "rope_sections": sections}


def gguf_image_fields(data: GgufMetadata, hidden: int) -> dict[str, Any]:
    """The fields of `VisionConfig` that text models lack, from metadata; raises ConfigError."""
    sections = tuple(data.counts("rope.dimension_sections", default=_SECTIONS))[:AXES]
    keys = data.projector("glm4v", hidden, "mm.model.fc.weight", axis=0, activation="silu")
    return {**glm4v.gguf_tower_fields(keys, hidden), "rope_sections": sections}


def text_section(data: ConfigJson) -> ConfigJson:
    """The part of config.json for the text model."""
    data.ignore("image_start_token_id", "image_end_token_id")
    data.ignore("video_start_token_id", "video_end_token_id")
    data.assume(tie_word_embeddings=False)
    return data.text_section(tied=None)


def from_hugging_face(data: ConfigJson) -> VisionConfig:
    """Read config.json. The projection of attention's result has no bias."""
    text = text_section(data)
    if (kind := text.text("model_type", default="glm4v_text")) != "glm4v_text":
        raise OtherFamily(f"config.json: text_config: model_type: got {kind!r:.80}, not glm4v_text")
    text.assume(attention_bias=True)
    fields = partial_fields(text, SHARE) | {"output_bias": False}
    return VisionConfig(**fields, **image_fields(data, fields["hidden"]))


def from_gguf(data: GgufMetadata) -> VisionConfig:
    """Read the metadata of a text model, `glm4`, and of its projector."""
    fields = partial_fields_from_gguf(data, SHARE)
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
    tensors = replace(
        architecture.tensors,
        prefixes=("model.language_model.",),
        towers=glm4v.tower_names("model.visual.", "visual."),
        **changes.pop("tensors", {}),
    )
    changes = {"gguf_name": architecture.name, "images": image_input, **changes}
    return replace(architecture, tensors=tensors, **changes)


ARCHITECTURE = with_tower(
    glm4.ARCHITECTURE,
    name="glm4v-images",
    config=VisionConfig,
    model_types=("glm4v", "glm46v"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Glm4vImages,
    # The converter puts the columns that turn half after half; those behind them turn nowhere.
    tensors={"gguf_interleaved": False, "head_width": lambda config: config.rotary_width},
)
