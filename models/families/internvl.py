"""InternVL 3: Qwen2.5 that reads images with InternViT, and cuts large ones into tiles.

Source: "InternVL3" (Zhu et al., 2025), and the model `internvl` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.bundle import ImageInput, ImageTiles
from hearthd.models.config import ImageShape, OtherFamily
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_gguf_metadata
from hearthd.models.families.llama import Llama
from hearthd.models.families.qwen2 import ARCHITECTURE as QWEN2
from hearthd.models.families.qwen2 import qwen_fields
from hearthd.models.towers import internvit, siglip

if TYPE_CHECKING:
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig, internvit.TowerConfig):
    """The shape of a model."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_tower(self.joined_patches)

    @property
    @override
    def image(self) -> ImageShape:
        """A row for each square of patches."""
        return ImageShape(self.image_size, (self.patches_per_side // self.joined_patches) ** 2)


class InternVl(Llama):
    """Qwen2.5 with a tower for images of one size."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = internvit.Tower(config)
        self.projector = internvit.Projector(config, config.hidden)

    def read_image(self, pixels: Tensor) -> Tensor:
        """Pixels f32 (3, S, S), normalized -> rows of embeddings (rows, E)."""
        return self.projector(self.tower(pixels))


def text_fields(data: ConfigJson, model_type: str) -> dict[str, Any]:
    """The fields of the text model in config.json; raises OtherFamily for another type of it."""
    text = data.text_section(tied=None)
    if (got := text.text("model_type", default=model_type)) != model_type:
        raise OtherFamily(f"config.json: text_config: model_type: got {got}, not {model_type}")
    return qwen_fields(text)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    text = text_fields(data, "qwen2") | {"attention_bias": True}
    return Config(**text, **internvit.tower_fields(data))


def gguf_fields(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config`, from the metadata of a text model and of its projector."""
    text = from_gguf_metadata(data)
    keys = data.projector("internvl", text["hidden"], "mm.model.mlp.3.weight", axis=0)
    bias = data.has_tensor("v.blk.0.attn_q.bias")
    return {**text, **internvit.gguf_tower_fields(keys, bias=bias)}


def image_input(config: Config, data: ConfigJson) -> ImageInput:
    """Read the settings of the processor: an image is cut into tiles, whose number is limited."""
    data.ignore("crop_to_patches")  # the processor sets it
    side = config.image.side
    if data.has("size"):
        data.section("size").fixed(height=side, width=side)
    tiles = ImageTiles(
        side=side,
        min_count=data.size("min_patches", default=1),
        max_count=data.size("max_patches", default=12),
        min_pixels=1,
        start="",
        thumbnail="",
    )
    return ImageInput(
        side=side,
        rows=config.image.rows,
        longest_edge=None,
        tiles=tiles,
        **siglip.pixel_fields(data, "bicubic", siglip.IMAGENET),
        marker="<IMG_CONTEXT>",
        placeholder="<IMG_CONTEXT>",
        begin="<img>",
        start="",
        end="</img>",
    )


def with_tower(text: Architecture[Any], **changes: Any) -> Architecture[Any]:
    """A text model's architecture, with the names of a tower."""
    prefixes = ("model.language_model.", "language_model.model.")
    towers = internvit.tower_names("model.", "")
    tensors = replace(text.tensors, prefixes=prefixes, towers=towers)
    changes = {"model_types": ("internvl",), "images": image_input, **changes}
    return replace(text, tensors=tensors, gguf_name=text.name, **changes)


ARCHITECTURE = with_tower(
    QWEN2,
    name="internvl",
    config=Config,
    read_config_json=from_hugging_face,
    read_gguf=lambda data: Config(**gguf_fields(data)),
    model=InternVl,
)
