"""Gemma 4 E2B and E4B with images: a tower for images of any size, and causal attention.

The rows of an image see each other in the larger models only, which are baked as text models.

Source: the model `gemma4` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.bundle import GridInput
from hearthd.models.config import ConfigError, OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.gemma4_config import (
    Gemma4Config,
    fields_from_gguf,
    fields_from_hugging_face,
)
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families import gemma4
from hearthd.models.towers import gemma4v, siglip

if TYPE_CHECKING:
    from hearthd.models.config import ImageGrid
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_ROWS = 280
_MIN_ROWS = 70


@dataclass(frozen=True, kw_only=True)
class Config(Gemma4Config, gemma4v.TowerConfig):
    """The shape of a model."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_layers()
        if self.tower_head_dim % 4:
            raise ConfigError(
                f"head_dim of the tower: got {self.tower_head_dim}, expected a multiple of 4"
            )
        if self.layer_embedding is None:
            raise OtherFamily("images: supported are models with embeddings for layers: E2B, E4B")

    @property
    @override
    def image(self) -> ImageGrid:
        """Images of any size."""
        return self.grid


class Gemma4Images(gemma4.EmbeddingGemma4):
    """Gemma 4 with a tower."""

    def __init__(self, config: Config) -> None:
        assert config.layer_embedding is not None, "a configuration checks it"
        super().__init__(config, config.layer_embedding)
        self.tower = gemma4v.Tower(config)
        self.projector = gemma4v.Projector(
            config.tower_hidden, config.hidden, config.tower_norm_eps
        )

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / merged^2, E) of an image: see `gemma4v.Tower`."""
        return self.projector(self.tower(patches, places, grid))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    return Config(**fields_with_tower(data))


def fields_with_tower(data: ConfigJson) -> dict[str, Any]:
    """The fields of `Config`, from config.json; raises ConfigError."""
    section = data.text_section()
    if section.flag("enable_moe_block", default=False):
        raise OtherFamily("images: a model with experts is baked without its tower")
    section.fixed(num_experts=None, top_k_experts=None, moe_intermediate_size=None)
    fields = fields_from_hugging_face(section)
    return {**fields, **gemma4v.tower_fields(data.section("vision_config"))}


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `gemma4`, and of its projector."""
    return Config(**gguf_fields_with_tower(data))


def gguf_fields_with_tower(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config`, from the metadata of both files; raises ConfigError."""
    text = fields_from_gguf(data)
    keys = data.projector("gemma4v", text["hidden"], "mm.input_projection.weight", axis=0)
    return {**text, **gemma4v.gguf_tower_fields(data, keys)}


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the settings of the processor; missing ones are those of the published models."""
    data.fixed(
        patch_size=config.patch_size, pooling_kernel_size=config.merged_patches,
        do_normalize=False,
    )  # fmt: skip
    data.ignore("image_mean", "image_std", "image_seq_length")  # it does not normalize
    rows = data.size("max_soft_tokens", default=_ROWS)
    if rows * config.merged_patches > config.table_side:
        raise ConfigError(f"max_soft_tokens: got {rows}, of {config.table_side} positions")
    area = (config.patch_size * config.merged_patches) ** 2
    half = (0.5,) * siglip.CHANNELS  # the model computes 2 x - 1
    return GridInput(
        patch=config.patch_size,
        merged=config.merged_patches,
        min_pixels=min(rows, _MIN_ROWS) * area,
        max_pixels=rows * area,
        fills=True,
        resampling=siglip.resampling(data, "bicubic"),
        mean=half,
        std=half,
        marker="<|image|>",
        start="<|image>",
        placeholder="<|image|>",
        end="<image|>",
        axes=1,
    )


def _tensors() -> TensorNames:
    towers = {
        "tower": gemma4v.tower_names("model.vision_tower.", "vision_tower."),
        "projector": TensorNames(
            gguf={"embedding_projection": "input_projection"},
            gguf_prefix="mm.",
            prefixes=("model.embed_vision.", "embed_vision."),
        ),
    }
    others = ("audio_tower.", "embed_audio.", "a.", "mm.a.")
    return replace(gemma4.ARCHITECTURE.tensors, others=others, towers=towers)


ARCHITECTURE = Architecture(
    name="gemma4-images",
    gguf_name="gemma4",
    config=Config,
    model_types=("gemma4",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma4Images,
    images=image_input,
    tensors=_tensors(),
)
