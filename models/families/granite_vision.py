"""Granite Vision 3: Granite that reads images as LLaVA 1.6 does, with SigLIP's tower.

Source: "Granite Vision" (2025), and the model `llava_next` of transformers. The hidden states after
several layers of the tower are projected together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ConfigError, ImageShape
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.dsl import ops
from hearthd.models.families import granite, llava_next
from hearthd.models.towers import clip, siglip

if TYPE_CHECKING:
    from hearthd.bundle import ImageInput
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_PREFIXES = tuple(
    f"{model}vision_tower.{inner}" for model in ("model.", "") for inner in ("", "vision_model.")
)
# What follows the layers that are read.
_UNREAD = tuple(
    f"vision_tower.{inner}{module}."
    for inner in ("", "vision_model.")
    for module in ("head", "post_layernorm")
)


@dataclass(frozen=True, kw_only=True)
class Config(granite.Config, siglip.TowerConfig):
    """The shape of a model.

    read_layers  how many layers precede each of the hidden states that are projected
    """

    read_layers: tuple[int, ...]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_layers()
        if not self.read_layers or max(self.read_layers) > self.tower_layers:
            raise ConfigError(
                f"vision_feature_layer: got {self.read_layers}, expected some of "
                f"{self.tower_layers} layers"
            )

    @property
    @override
    def image(self) -> ImageShape:
        """A row for each patch, and one that ends a line."""
        return ImageShape(self.image_size, self.patches_per_side**2 + 1)


class GraniteVision(granite.Granite):
    """Granite with a tower for images of one size."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = siglip.Layers(config)
        width = len(config.read_layers) * config.tower_hidden
        self.projector = clip.Projector(width, config.hidden)
        self.line_end = llava_next.LineEnd(config.hidden)

    def read_image(self, pixels: Tensor) -> Tensor:
        """Pixels f32 (3, S, S), normalized -> rows of embeddings (rows, E)."""
        states = self.tower.states(pixels)
        read = [states[layer] for layer in self.config.read_layers]
        rows = self.line_end(self.projector(ops.concatenate(*read, axis=1)))
        return rows * self.config.embedding_scale


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json; raises OtherFamily for another text model's."""
    text = asdict(granite.from_hugging_face(llava_next.text_section(data, "granite")))
    data.fixed(
        projector_hidden_act="gelu", vision_feature_select_strategy="full",
        multimodal_projector_bias=True,
    )  # fmt: skip
    data.ignore("image_seq_length")
    vision = data.section("vision_config")
    vision.fixed(model_type="siglip_vision_model")
    vision.ignore("vision_use_head")
    tower = siglip.tower_fields(vision)
    return Config(**text, **tower, read_layers=_read_layers(data, tower["tower_layers"]))


def _read_layers(data: ConfigJson, layers: int) -> tuple[int, ...]:
    """The layers before each of the hidden states that are read; negative ones are from the end."""
    numbers = [int(number) for number in data.factors("vision_feature_layer", default=(-1,))]
    return tuple(number if number >= 0 else layers + 1 + number for number in numbers)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `granite`, and of its projector."""
    text = asdict(granite.ARCHITECTURE.read_gguf(data))
    keys = llava_next.projector(data, text["hidden"])
    keys.ignore("use_gelu")  # the script sets it for exact GELU alone, which no such tower has
    tower = siglip.gguf_tower_fields(keys)
    layers = keys.counts("vision.feature_layer", default=[tower["tower_layers"]])
    return Config(**text, **tower, read_layers=tuple(layers))


def image_input(config: Config, data: ConfigJson) -> ImageInput:
    """Read the processor's settings."""
    return llava_next.padded_input(config, data, siglip.HALF)


ARCHITECTURE = Architecture(
    name="granite-vision",
    gguf_name="granite",
    config=Config,
    model_types=("llava_next",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=GraniteVision,
    images=image_input,
    tensors=replace(
        granite.ARCHITECTURE.tensors,
        prefixes=("model.language_model.", "language_model.model.", "model.", ""),
        others=_UNREAD,
        towers=llava_next.names_with_line_end(
            {**clip.tower_names("model.", ""), "tower": siglip.tower_names(*_PREFIXES)}
        ),
    ),
)
