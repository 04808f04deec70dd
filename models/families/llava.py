"""LLaVA 1.5: Llama that reads images with CLIP's tower.

Source: "Improved Baselines with Visual Instruction Tuning" (Liu et al., 2023), and the model
`llava` of transformers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle import ImageInput
from hearthd.models.config import ImageShape, OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_gguf_metadata
from hearthd.models.families import llama
from hearthd.models.towers import clip, siglip

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

# What the published configuration leaves out.
VICUNA_7B = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig, clip.TowerConfig):
    """The shape of a model."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_tower(1)
        self.require_layers_read()

    @property
    @override
    def image(self) -> ImageShape:
        """A row for each patch."""
        return ImageShape(self.image_size, self.patches_per_side**2)


class Llava(llama.Llama):
    """Llama with a tower for images of one size."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = clip.Tower(config)
        self.projector = clip.Projector(config.tower_hidden, config.hidden)

    def read_image(self, pixels: Tensor) -> Tensor:
        """Pixels f32 (3, S, S), normalized -> rows of embeddings (rows, E)."""
        return self.projector(self.tower(pixels))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json; raises OtherFamily for another tower's."""
    vision = data.section("vision_config")
    if (got := vision.text("model_type", default="clip_vision_model")) != "clip_vision_model":
        raise OtherFamily(f"config.json: vision_config: model_type: got {got!r:.80}, not CLIP's")
    data.ignore("ignore_index", "pad_token_id", "vocab_size")
    data.assume(tie_word_embeddings=False)
    text = data.text_section(tied=None)
    text.assume(**VICUNA_7B)
    tower = clip.tower_fields(data, vision)
    return Config(**asdict(llama.from_hugging_face(text)), **tower)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `llama`, and of its projector."""
    text = from_gguf_metadata(data)
    keys = data.projector("mlp", text["hidden"], "mm.2.weight", axis=0, activation=None)
    return Config(**text, **clip.gguf_tower_fields(keys))


def image_input(config: Config, data: ConfigJson) -> ImageInput:
    """Read the processor's settings: by default an image is padded, as in LLaVA's own code."""
    side = config.image.side
    pads = data.flag("do_pad", default=not data.flag("do_center_crop", default=False))
    if data.has("size"):
        data.section("size").fixed(shortest_edge=side)
    if data.has("crop_size"):
        data.section("crop_size").fixed(height=side, width=side)
    return ImageInput(
        side=side,
        rows=config.image.rows,
        longest_edge=None,
        fit="pad" if pads else "crop",
        **siglip.pixel_fields(data, "bicubic", siglip.CLIP, may_pad=True),
        marker="<image>",
        placeholder="<image>",
        start="",
        end="",
    )


ARCHITECTURE = Architecture(
    name="llava",
    gguf_name="llama",
    config=Config,
    model_types=("llava",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Llava,
    images=image_input,
    tensors=replace(
        llama.ARCHITECTURE.tensors,
        prefixes=("model.language_model.", "language_model.model."),
        towers=clip.tower_names("model.", ""),
    ),
)
