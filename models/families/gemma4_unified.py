"""Gemma 4 12B with images: squares of pixels are projected to rows of embeddings, without a tower.

Source: the model `gemma4_unified` of transformers (2026). `N` is squares of an image, `E` the width
of their embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ImageGrid
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.gemma4_config import (
    Gemma4Config,
    fields_from_gguf,
    fields_from_hugging_face,
)
from hearthd.models.decoder.tensor_names import GroupedRows, TensorNames
from hearthd.models.dsl import nn
from hearthd.models.families import gemma4, gemma4_images
from hearthd.models.towers import gemma4v
from hearthd.models.towers.siglip import CHANNELS
from hearthd.models.towers.tower_config import axis_of

if TYPE_CHECKING:
    from hearthd.bundle import GridInput
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_EPS = 1e-5  # that of its LayerNorms


@dataclass(frozen=True, kw_only=True)
class Config(Gemma4Config):
    """The shape of a model.

    patch_size      pixels of a side of a patch
    merged_patches  patches of a side of the square that gives one row of embeddings
    table_side      learned positions in a row and in a column
    square_width    E
    square_eps      what the last norm of the embedding of a square adds to the mean square
    image_blocks    whether the rows of an image see each other, in layers with a window
    """

    patch_size: int
    merged_patches: int
    table_side: int
    square_width: int
    square_eps: float
    image_blocks: bool

    @property
    @override
    def image(self) -> ImageGrid:
        """Images of any size, in squares."""
        return ImageGrid(self.patch_size * self.merged_patches, 1)

    @override
    def looks_ahead(self, layer: int) -> bool:
        """Whether a layer lets each row of an image see the later ones too."""
        return self.image_blocks and bool(self.windows) and self.windows[layer] is not None


class SquareEmbedding(nn.Module):
    """Pixels of squares, and where these are, to embeddings."""

    def __init__(self, config: Config) -> None:
        pixels, width = CHANNELS * config.image.patch**2, config.square_width
        self.table_side = config.table_side
        self.pixel_norm = nn.LayerNorm(pixels, _EPS)
        self.patch_embedding = nn.Linear(pixels, width, bias=True)
        self.patch_norm = nn.LayerNorm(width, _EPS)
        self.position_embedding = nn.Embedding(2 * config.table_side, width)
        self.position_norm = nn.LayerNorm(width, _EPS)

    def __call__(self, patches: Tensor, places: Tensor) -> Tensor:
        """Squares f32 (N, channels * pixels) at rows and columns i32 (2, N) -> (N, E)."""
        h = self.patch_norm(self.patch_embedding(self.pixel_norm(patches)))
        row, column = (axis_of(places, i) for i in (0, 1))
        h = h + self.position_embedding(column) + self.position_embedding(row + self.table_side)
        return self.position_norm(h)


class Gemma4Unified(gemma4.Gemma4):
    """Gemma 4 with an embedding of squares of pixels."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.squares = SquareEmbedding(config)
        self.projector = gemma4v.Projector(config.square_width, config.hidden, config.square_eps)

    def read_patches(self, patches: Tensor, places: Tensor, _: Tensor) -> Tensor:
        """Rows of embeddings (N, E) of an image: see `SquareEmbedding`."""
        return self.projector(self.squares(patches, places))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    section, images = data.text_section(), data.section("vision_config")
    patch = images.size("patch_size", default=16)
    merged = images.size("pooling_kernel_size", default=3)
    images.fixed(model_type="gemma4_unified_vision", model_patch_size=patch * merged)
    images.ignore("output_proj_dims", "num_soft_tokens")
    return Config(
        **fields_from_hugging_face(section),
        patch_size=patch,
        merged_patches=merged,
        table_side=images.size("mm_posemb_size", default=1120),
        square_width=images.size("mm_embed_dim", default=3840),
        square_eps=images.number("rms_norm_eps", default=1e-6),
        image_blocks=section.text("use_bidirectional_attention", default="") == "vision",
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `gemma4`, and of its projector."""
    text = fields_from_gguf(data)
    keys = data.projector(
        gemma4_images.UNIFIED_PROJECTOR, text["hidden"], "mm.input_projection.weight", axis=0
    )
    keys.ignore(
        "vision.image_size", "vision.embedding_length", "vision.block_count",
        "vision.feed_forward_length", "vision.attention.head_count",
    )  # fmt: skip
    return Config(
        **text,
        patch_size=keys.size("vision.patch_size"),
        merged_patches=keys.size("vision.projector.scale_factor", default=3),
        table_side=data.rows("v.position_embd.weight", axis=1),
        square_width=data.rows("v.patch_embd.bias"),
        square_eps=keys.number("vision.attention.layer_norm_epsilon"),
        image_blocks=True,
    )


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the settings of the processor: those of Gemma 4, for pixels from 0 to 1."""
    side, grid = config.image.patch, ImageGrid(config.patch_size, config.merged_patches)
    data.fixed(model_patch_size=side)
    settings = gemma4v.image_input(grid, config.table_side, data, both_ways=config.has_blocks)
    zeros, ones = (0.0,) * CHANNELS, (1.0,) * CHANNELS
    return replace(settings, patch=side, merged=1, mean=zeros, std=ones)


# Folders have the embeddings of a column and of a row in turn, files those of all columns first.
_POSITIONS = GroupedRows(
    folder="positions",
    gguf="",
    parts=("position_embedding",) * 2,
    shape=lambda config: (config.table_side, (1, 1)),
)
ARCHITECTURE = Architecture(
    name="gemma4-unified",
    gguf_name="gemma4",
    config=Config,
    model_types=("gemma4_unified",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma4Unified,
    images=image_input,
    tensors=replace(
        gemma4.ARCHITECTURE.tensors,
        others=("embed_audio.", "a.", "mm.a."),
        towers={
            "squares": TensorNames(
                gguf={
                    "patch_embedding": "patch_embd",
                    "pixel_norm": "patch_norm.1",
                    "patch_norm": "patch_norm.2",
                    "position_embedding": "position_embd",
                    "position_norm": "patch_norm.3",
                },
                gguf_prefix="v.",
                folder={
                    "patch_embedding": "patch_dense",
                    "pixel_norm": "patch_ln1",
                    "patch_norm": "patch_ln2",
                    "positions.weight": "pos_embedding",
                    "position_norm": "pos_norm",
                },
                grouped=(_POSITIONS,),
                prefixes=("model.vision_embedder.", "vision_embedder."),
                channels_last=("patch_embedding.weight", "pixel_norm.weight", "pixel_norm.bias"),
            ),
            "projector": TensorNames(
                gguf={"embedding_projection": "input_projection"},
                gguf_prefix="mm.",
                prefixes=("model.embed_vision.", "embed_vision."),
            ),
        },
    ),
)
