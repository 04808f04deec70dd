"""SmolVLM: Llama that reads images, as Idefics3 does.

Source: "SmolVLM: Redefining small and efficient multimodal models" (Marafioti et al., 2025),
"Building and better understanding vision-language models" (Laurençon et al., 2024), and the model
`idefics3` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle import ImageInput
from hearthd.models.config import ImageShape
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.dsl import nn
from hearthd.models.families.llama import Llama
from hearthd.models.towers import siglip

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig, siglip.TowerConfig):
    """The shape of a model.

    joined_patches  patches of a side of the square that gives one row of embeddings
    """

    joined_patches: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_tower(self.joined_patches)

    @property
    @override
    def image(self) -> ImageShape:
        """A row for each square of patches."""
        return ImageShape(self.image_size, (self.patches_per_side // self.joined_patches) ** 2)


class Connector(nn.Module):
    """Joins the hidden states of squares of patches, and projects them to the text model."""

    def __init__(self, config: Config) -> None:
        self.side = config.joined_patches
        self.projection = nn.Linear(config.tower_hidden * self.side**2, config.hidden)

    def __call__(self, h: Tensor) -> Tensor:
        """Hidden states of a tower (N, E_v) -> (N / side^2, E)."""
        return self.projection(siglip.squares(h, self.side))


class SmolVlm(Llama):
    """Llama with a tower for images of one size."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tower = siglip.Tower(config)
        self.connector = Connector(config)

    def read_image(self, pixels: Tensor) -> Tensor:
        """Pixels f32 (3, S, S), normalized -> rows of embeddings (rows, E)."""
        return self.connector(self.tower(pixels))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json. Its text model is Llama."""
    text, vision = data.section("text_config"), data.section("vision_config")
    data.ignore("_pad_token_id", "image_token_id", "vocab_size")
    text.ignore(
        "_flash_attn_2_enabled", "neftune_noise_alpha", "perceiver_config",
        "pixel_shuffle_factor", "tie_word_embeddings",
    )  # fmt: skip
    text.fixed(model_type="llama", qk_layer_norms=False, use_resampler=False)
    vision.ignore("use_base_siglip")
    fields = from_config_json(text) | siglip.tower_fields(vision)
    fields["tied"] = data.flag("tie_word_embeddings", default=False)
    return Config(**fields, joined_patches=data.size("scale_factor", default=2))


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `llama`, and of its projector."""
    text = from_gguf_metadata(data)
    keys = data.projector("idefics3", text["hidden"], "mm.model.fc.weight", axis=0)
    joined = keys.size("vision.projector.scale_factor", default=2)
    return Config(**text, **siglip.gguf_tower_fields(keys), joined_patches=joined)


def image_input(config: Config, data: ConfigJson) -> ImageInput:
    """Read the settings of the processor: an image is cut into squares."""
    data.fixed(do_image_splitting=True)
    side = config.image.side
    edge = data.section("size").size("longest_edge") if data.has("size") else 4 * side
    if data.has("max_image_size"):
        data.section("max_image_size").fixed(longest_edge=side)
    return ImageInput(
        side=side,
        rows=config.image.rows,
        longest_edge=edge,
        **siglip.pixel_fields(data, "lanczos"),
        marker="<image>",
        placeholder="<image>",
        tile="<fake_token_around_image><row_{row}_col_{column}>",
        line_end="\n",
        start="<fake_token_around_image><global-img>",
        end="<fake_token_around_image>",
    )


ARCHITECTURE = Architecture(
    name="smolvlm",
    gguf_name="llama",
    config=Config,
    model_types=("idefics3", "smolvlm"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=SmolVlm,
    images=image_input,
    tensors=TensorNames(
        interleaved=QUERIES_AND_KEYS,
        prefixes=("model.text_model.",),
        towers={
            "tower": siglip.tower_names("model.vision_model."),
            "connector": TensorNames(
                gguf={"projection": "model.fc"},
                gguf_prefix="mm.",
                folder={"projection": "modality_projection.proj"},
                prefixes=("model.connector.",),
            ),
        },
    ),
)
