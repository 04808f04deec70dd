"""Pixtral 12B: Mistral NeMo that reads images of any size.

Source: "Pixtral 12B" (Agrawal et al., 2024), and the models `llava` and `pixtral` of transformers.
GGUF files of Mistral Small 3.1 and 3.2 are of this family too: their projector joins squares of
patches. Their Hugging Face folders are read by mistral3_images.py.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.bundle import GridInput
from hearthd.models.config import OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_gguf_metadata
from hearthd.models.families import llama
from hearthd.models.towers import pixtral as towers
from hearthd.models.towers import siglip

if TYPE_CHECKING:
    from hearthd.models.config import ImageGrid
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.tensor_names import TensorNames
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig, towers.TowerConfig):
    """The shape of a model."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_layers(parts=4)

    @property
    @override
    def image(self) -> ImageGrid:
        """Images of any size."""
        return self.grid


class Pixtral(llama.Llama):
    """Mistral with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = towers.Tower(config)
        self.projector = towers.Projector(config, config.hidden, config.norm_eps)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (N / M, E) of an image: see `pixtral.Tower`."""
        return self.projector(self.tower(patches, places, grid))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json; raises OtherFamily for another tower's."""
    vision = data.section("vision_config")
    if (got := vision.text("model_type", default="")) != "pixtral":
        raise OtherFamily(f"config.json: vision_config: model_type: got {got!r:.80}, not pixtral")
    data.fixed(spatial_merge_size=1)
    data.ignore("ignore_index", "image_seq_length")
    data.assume(tie_word_embeddings=False)
    text = data.text_section(tied=None)
    text.ignore("is_composition")
    text.assume(num_attention_heads=32)
    tower = towers.tower_fields(data, vision) | {"merged_patches": 1, "has_merger": False}
    tower["projector_bias"] = data.flag("multimodal_projector_bias", default=True)
    return Config(**asdict(llama.from_hugging_face(text)), **tower)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `llama`, and of its projector."""
    text = from_gguf_metadata(data)
    return Config(**text, **gguf_tower_fields(data, text["hidden"]))


def gguf_tower_fields(data: GgufMetadata, hidden: int, type_: str = "pixtral") -> dict[str, Any]:
    """The fields of `pixtral.TowerConfig`, from a projector's metadata; raises ConfigError."""
    keys = data.projector(type_, hidden, "mm.2.weight", axis=0, activation="silu")
    return towers.gguf_tower_fields(
        keys,
        bias=data.has_tensor("mm.1.bias"),
        merger=data.has_tensor("mm.patch_merger.weight"),
    )


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the processor's settings; defaults are the published models' settings."""
    data.ignore("patch_size")  # the processor resizes by the square that gives a row
    edge, step = config.longest_edge, config.patch_size * config.merged_patches
    if data.has("size"):
        edge = data.section("size").size("longest_edge", default=edge)
    return GridInput(
        patch=config.patch_size,
        merged=config.merged_patches,
        min_pixels=1,
        max_pixels=(math.ceil(edge / step) * step) ** 2,
        longest_edge=edge,
        **siglip.pixel_fields(data, "bicubic", siglip.CLIP),
        marker="[IMG]",
        start="",
        placeholder="[IMG]",
        line_end="[IMG_BREAK]",
        end="[IMG_END]",
        axes=1,
    )


def names_with_tower(text: Architecture[Any]) -> TensorNames:
    """The names of a text model's tensors, and of the tower's."""
    return replace(
        text.tensors,
        # The converter copies the row of this token for llama.cpp's tower.
        others=("v.token_embd.img_break",),
        towers=towers.tower_names("model.", ""),
    )


ARCHITECTURE = Architecture(
    name="pixtral",
    gguf_name="llama",
    config=Config,
    model_types=("llava",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Pixtral,
    images=image_input,
    tensors=replace(
        names_with_tower(llama.ARCHITECTURE),
        prefixes=("model.language_model.", "language_model.model.", ""),
    ),
)
