"""What Gemma 4 12B has in place of towers: projections of squares of pixels and frames of samples.

Source: the model `gemma4_unified` of transformers (2026). `N` is squares of an image, `E` the width
of their embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.models.config import ImageGrid, SoundShape
from hearthd.models.decoder.tensor_names import GroupedRows, TensorNames
from hearthd.models.dsl import nn
from hearthd.models.towers.siglip import CHANNELS
from hearthd.models.towers.tower_config import axis_of

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_EPS = 1e-5  # of its LayerNorms
_SOUND_EPS = 1e-6
_SOUND_MATRIX = "mm.a.input_projection.weight"


@dataclass(frozen=True, kw_only=True)
class InputConfig:
    """The shape of images and sound.

    patch_size      pixels of a side of a patch
    merged_patches  patches of a side of the square that gives one row of embeddings
    table_side      learned positions in a row and in a column
    square_width    E
    square_eps      what the last norm of the embedding of a square adds to the mean square
    sound_frame     samples of a frame of sound, which gives a row; None: sound is not read
    sound_eps       what the norm of a frame adds to the mean square
    """

    patch_size: int
    merged_patches: int
    table_side: int
    square_width: int
    square_eps: float
    sound_frame: int | None = None
    sound_eps: float = _SOUND_EPS

    @property
    def image(self) -> ImageGrid:
        """Images of any size, in squares."""
        return ImageGrid(self.patch_size * self.merged_patches, 1)

    @property
    def sound(self) -> SoundShape | None:
        """Frames of samples."""
        return None if self.sound_frame is None else SoundShape(self.sound_frame, 1)


class SquareEmbedding(nn.Module):
    """Pixels of squares, and where these are, to embeddings."""

    def __init__(self, config: InputConfig) -> None:
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


def input_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `InputConfig`, from config.json; raises ConfigError."""
    images, sound = data.section("vision_config"), data.section("audio_config")
    patch = images.size("patch_size", default=16)
    merged = images.size("pooling_kernel_size", default=3)
    images.fixed(model_type="gemma4_unified_vision", model_patch_size=patch * merged)
    images.ignore("output_proj_dims", "num_soft_tokens")
    sound.fixed(model_type="gemma4_unified_audio")
    frame = sound.size("audio_embed_dim", default=640)
    return {
        "patch_size": patch,
        "merged_patches": merged,
        "table_side": images.size("mm_posemb_size", default=1120),
        "square_width": images.size("mm_embed_dim", default=3840),
        "square_eps": images.number("rms_norm_eps", default=1e-6),
        "sound_frame": frame if data.has("audio_config") else None,
        "sound_eps": sound.number("rms_norm_eps", default=_SOUND_EPS),
    }


# llama.cpp reads none of them.
_SOUND_KEYS = (
    "attention.head_count", "attention.layer_norm_epsilon", "block_count", "embedding_length",
    "feed_forward_length", "num_mel_bins",
)  # fmt: skip


def gguf_input_fields(data: GgufMetadata, projector: str, hidden: int) -> dict[str, Any]:
    """The same from the metadata of a projector of a type, for a text model of a hidden width."""
    keys = data.projector(projector, hidden, "mm.input_projection.weight", axis=0)
    keys.ignore(
        "vision.image_size", "vision.embedding_length", "vision.block_count",
        "vision.feed_forward_length", "vision.attention.head_count",
    )  # fmt: skip
    frame = None
    if data.has_tensor(_SOUND_MATRIX):
        sound = data.projector("gemma4ua", hidden, _SOUND_MATRIX, axis=0, tower="audio")
        sound.ignore(*(f"audio.{key}" for key in _SOUND_KEYS))
        frame = data.rows(_SOUND_MATRIX, axis=1)
    return {
        "patch_size": keys.size("vision.patch_size"),
        "merged_patches": keys.size("vision.projector.scale_factor", default=3),
        "table_side": data.rows("v.position_embd.weight", axis=1),
        "square_width": data.rows("v.patch_embd.bias"),
        "square_eps": keys.number("vision.attention.layer_norm_epsilon"),
        "sound_frame": frame,
    }


# Folders have the embeddings of a column and of a row in turn, files first all columns'.
_POSITIONS = GroupedRows(
    folder="positions",
    gguf="",
    parts=("position_embedding",) * 2,
    shape=lambda config: (config.table_side, (1, 1)),
)


def input_names() -> dict[str, TensorNames]:
    """The names of the tensors, by the part of the model."""
    return {
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
        "sound_projector": TensorNames(
            gguf={"embedding_projection": "input_projection"},
            gguf_prefix="mm.a.",
            prefixes=("model.embed_audio.", "embed_audio."),
        ),
    }
