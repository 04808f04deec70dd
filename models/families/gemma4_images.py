"""Gemma 4 with images: a tower for images of any size.

The rows of an image see each other in the larger models, and there in layers with a window only.

Source: the model `gemma4` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.gemma4_config import (
    Gemma4Config,
    fields_from_gguf,
    fields_from_hugging_face,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families import gemma4
from hearthd.models.towers import gemma4v

if TYPE_CHECKING:
    from hearthd.bundle import GridInput
    from hearthd.models.config import ImageGrid
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

UNIFIED_PROJECTOR = "gemma4uv"


@dataclass(frozen=True, kw_only=True)
class Config(Gemma4Config, gemma4v.TowerConfig):
    """The shape of a model.

    image_blocks  whether the rows of an image see each other, in layers with a window
    """

    image_blocks: bool = False

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_tower()

    @property
    @override
    def image(self) -> ImageGrid:
        """Images of any size."""
        return self.grid

    @property
    @override
    def has_fine_towers(self) -> bool:
        """Scores are not divided by the root of a head's width, so they are large."""
        return True

    @override
    def looks_ahead(self, layer: int) -> bool:
        """Whether a layer lets each row of an image see the later ones too."""
        return self.image_blocks and bool(self.windows) and self.windows[layer] is not None


class ReadsPatches:
    """A model with a tower."""

    def add_tower(self, config: Config) -> None:
        """Add the tower and its projector."""
        self.tower = gemma4v.Tower(config)
        self.projector = gemma4v.Projector(
            config.tower_hidden, config.hidden, config.tower_norm_eps
        )

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / merged^2, E) of an image: see `gemma4v.Tower`."""
        return self.projector(self.tower(patches, places, grid))


class Gemma4Images(ReadsPatches, gemma4.Gemma4):
    """Gemma 4 with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.add_tower(config)


class EmbeddingGemma4Images(ReadsPatches, gemma4.EmbeddingGemma4):
    """Gemma 4 with a tower, and embeddings for each layer."""

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.add_tower(config)


def gemma4_images(config: Config) -> Gemma4Images | EmbeddingGemma4Images:
    """The model of a configuration."""
    width = config.layer_embedding
    return Gemma4Images(config) if width is None else EmbeddingGemma4Images(config, width)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    return Config(**fields_with_tower(data))


def fields_with_tower(data: ConfigJson) -> dict[str, Any]:
    """The fields of `Config`, from config.json; raises ConfigError."""
    section = data.text_section()
    if section.flag("enable_moe_block", default=False):
        raise OtherFamily("config.json: enable_moe_block: got true, supported is false")
    section.fixed(num_experts=None, top_k_experts=None, moe_intermediate_size=None)
    return {**fields_from_hugging_face(section), **image_fields(data, section)}


def image_fields(data: ConfigJson, section: ConfigJson) -> dict[str, Any]:
    """The fields that `Config` adds to the text model's; `section` is the text model's."""
    return {
        **gemma4v.tower_fields(data.section("vision_config")),
        "image_blocks": section.text("use_bidirectional_attention", default="") == "vision",
    }


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `gemma4`, and of its projector."""
    return Config(**gguf_fields_with_tower(data))


def gguf_fields_with_tower(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config`, from the metadata of both files; raises ConfigError."""
    if data.count("expert_count", default=0):
        raise OtherFamily("gemma4.expert_count: supported are models without experts")
    if (type_ := data.projector_type) == UNIFIED_PROJECTOR:
        raise OtherFamily(f"clip.vision.projector_type: got {type_}, supported is gemma4v")
    text = fields_from_gguf(data)
    return {**text, **gguf_image_fields(data, text)}


def gguf_image_fields(data: GgufMetadata, text: dict[str, Any]) -> dict[str, Any]:
    """The fields that `Config` adds to the text model's.

    Files do not say whether the rows of an image see each other: in the larger models they do.
    """
    keys = data.projector("gemma4v", text["hidden"], "mm.input_projection.weight", axis=0)
    blocks = text["layer_embedding"] is None
    return {**gemma4v.gguf_tower_fields(data, keys), "image_blocks": blocks}


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the processor's settings; defaults are the published models' settings."""
    return gemma4v.image_input(config.grid, config.table_side, data, both_ways=config.has_blocks)


def tensors_with_tower(text: TensorNames) -> TensorNames:
    """The names of the tensors of a text model and its tower."""
    towers = {
        "tower": gemma4v.tower_names("model.vision_tower.", "vision_tower."),
        "projector": TensorNames(
            gguf={"embedding_projection": "input_projection"},
            gguf_prefix="mm.",
            prefixes=("model.embed_vision.", "embed_vision."),
        ),
    }
    others = ("audio_tower.", "embed_audio.", "a.", "mm.a.")
    return replace(text, others=others, towers=towers)


ARCHITECTURE = Architecture(
    name="gemma4-images",
    gguf_name="gemma4",
    config=Config,
    model_types=("gemma4",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=gemma4_images,
    images=image_input,
    tensors=tensors_with_tower(gemma4.ARCHITECTURE.tensors),
)
