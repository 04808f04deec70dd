"""LLaVA 1.6 (LLaVA-NeXT): LLaVA that cuts large images into tiles, and keeps their lines.

Source: "LLaVA-NeXT: Improved reasoning, OCR, and world knowledge" (Liu et al., 2024), and the model
`llava_next` of transformers. A learned row of embeddings ends each line of the tiles' rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle import ImageInput, PaddedTiles
from hearthd.models.config import ConfigError, ImageShape, OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_gguf_metadata
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import nn, ops
from hearthd.models.families import llama, llava
from hearthd.models.towers import clip, siglip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

# Heights and widths of layouts, in pixels.
_PINPOINTS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
_TEXTS = ("llama", "mistral")


@dataclass(frozen=True, kw_only=True)
class Config(llava.Config):
    """The shape of a model."""

    @property
    @override
    def image(self) -> ImageShape:
        """A row for each patch, and one that ends a line."""
        return ImageShape(self.image_size, self.patches_per_side**2 + 1)


class LineEnd(nn.Module):
    """The row of embeddings that ends a line."""

    def __init__(self, hidden: int) -> None:
        self.row = nn.Embedding(1, hidden)

    def __call__(self, rows: Tensor) -> Tensor:
        """Rows of embeddings (N, hidden) -> (N + 1, hidden)."""
        return ops.concatenate(rows, self.row.weight, axis=0)


class LlavaNext(llava.Llava):
    """Llama with a tower for images of one size."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.line_end = LineEnd(config.hidden)

    @override
    def read_image(self, pixels: Tensor) -> Tensor:
        """Pixels f32 (3, S, S), normalized -> rows of embeddings (rows, E)."""
        return self.line_end(super().read_image(pixels))


def text_section(data: ConfigJson, *model_types: str) -> ConfigJson:
    """The part of config.json for the text model; raises OtherFamily for another type of it."""
    data.fixed(use_image_newline_parameter=True)
    data.ignore("ignore_index", "image_grid_pinpoints", "pad_token_id", "vocab_size")
    data.assume(tie_word_embeddings=False)
    text = data.text_section(tied=None)
    if (got := text.text("model_type", default="llama")) not in model_types:
        raise OtherFamily(f"config.json: text_config: model_type: got {got!r:.80}")
    return text


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json; raises OtherFamily for another text model's."""
    text = text_section(data, *_TEXTS)
    text.assume(**llava.VICUNA_7B)
    tower = clip.tower_fields(data, data.section("vision_config"))
    return Config(**asdict(llama.from_hugging_face(text)), **tower)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `llama`, and of its projector."""
    text = from_gguf_metadata(data)
    return Config(**text, **clip.gguf_tower_fields(projector(data, text["hidden"])))


def projector(data: GgufMetadata, hidden: int) -> ProjectorMetadata:
    """The keys of a projector of a GGUF file; raises ConfigError."""
    keys = data.projector("mlp", hidden, "mm.2.weight", axis=0, activation=None)
    keys.choice("vision.image_aspect_ratio", ("anyres",), default="anyres")
    keys.choice("vision.mm_patch_merge_type", ("spatial_unpad",), default="spatial_unpad")
    keys.choice("vision.mm_projector_type", ("mlp2x_gelu",), default="mlp2x_gelu")
    keys.ignore(
        "vision.image_crop_resolution", "vision.image_grid_pinpoints",
        "vision.image_split_resolution",
    )  # fmt: skip
    return keys


def image_input(config: clip.TowerConfig, data: ConfigJson) -> ImageInput:
    """Read the processor's settings."""
    return padded_input(config, data, siglip.CLIP)


def padded_input(
    config: siglip.TowerConfig, data: ConfigJson, pixels: tuple[tuple[float, ...], ...]
) -> ImageInput:
    """Read the processor's settings; `pixels` normalizes them where the settings do not say."""
    side = config.image_size
    data.fixed(aspect_ratio_setting="anyres", do_center_crop=True)
    if data.has("size"):
        size = data.section("size")
        size.fixed(shortest_edge=side, height=side, width=side)
    if data.has("crop_size"):
        data.section("crop_size").fixed(height=side, width=side)
    return ImageInput(
        side=side,
        rows=config.patches_per_side**2 + 1,
        longest_edge=None,
        padded=PaddedTiles(layouts=_layouts(data, side)),
        **siglip.pixel_fields(data, "bicubic", pixels),
        marker="<image>",
        placeholder="<image>",
        start="",
        end="",
    )


def _layouts(data: ConfigJson, side: int) -> tuple[tuple[int, int], ...]:
    """Columns and rows of tiles; raises ConfigError for sides that `side` does not divide."""
    pairs = data.pairs("image_grid_pinpoints", default=_PINPOINTS)
    for pair in pairs:
        if pair[0] % side or pair[1] % side:
            raise ConfigError(
                f"image_grid_pinpoints: got {pair}, expected multiples of {side} pixels"
            )
    return tuple((width // side, height // side) for height, width in pairs)


def names_with_line_end(towers: Mapping[str, TensorNames]) -> dict[str, TensorNames]:
    """The names of a tower's tensors, and of the row that ends a line."""
    line_end = TensorNames(
        gguf={"row.weight": "image_newline"},
        gguf_prefix="model.",
        folder={"row.weight": "image_newline"},
        prefixes=("model.", ""),
    )
    return {**towers, "line_end": line_end}


ARCHITECTURE = Architecture(
    name="llava-next",
    gguf_name="llama",
    config=Config,
    model_types=("llava_next",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=LlavaNext,
    images=image_input,
    tensors=replace(
        llava.ARCHITECTURE.tensors,
        towers=names_with_line_end(llava.ARCHITECTURE.tensors.towers),
    ),
)
