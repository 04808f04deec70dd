"""Gemma 4 12B: squares of pixels, and frames of samples, are projected to rows of embeddings.

Source: the model `gemma4_unified` of transformers (2026).
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
from hearthd.models.families import gemma4, gemma4_images, gemma4_sound
from hearthd.models.towers import gemma4u, gemma4v
from hearthd.models.towers.siglip import CHANNELS

if TYPE_CHECKING:
    from hearthd.bundle import GridInput, SoundInput
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(gemma4u.InputConfig, Gemma4Config):
    """The shape of a model.

    image_blocks  whether the rows of an image see each other, in layers with a window
    """

    image_blocks: bool

    @override
    def looks_ahead(self, layer: int) -> bool:
        """Whether a layer lets each row of an image see the later ones too."""
        return self.image_blocks and bool(self.windows) and self.windows[layer] is not None


class Gemma4Unified(gemma4.Gemma4):
    """Gemma 4 with an embedding of squares of pixels, and one of frames of samples."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.squares = gemma4u.SquareEmbedding(config)
        self.projector = gemma4v.Projector(config.square_width, config.hidden, config.square_eps)
        if config.sound_frame is not None:
            self.sound_projector = gemma4v.Projector(
                config.sound_frame, config.hidden, config.sound_eps
            )

    def read_patches(self, patches: Tensor, places: Tensor, _: Tensor) -> Tensor:
        """Rows of embeddings (N, E) of an image: see `gemma4u.SquareEmbedding`."""
        return self.projector(self.squares(patches, places))

    def read_sound(self, frames: Tensor, _: Tensor) -> Tensor:
        """Rows of embeddings (T, E) of frames of samples (T, width)."""
        return self.sound_projector(frames)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    section = data.text_section()
    return Config(
        **fields_from_hugging_face(section),
        **gemma4u.input_fields(data),
        image_blocks=section.text("use_bidirectional_attention", default="") == "vision",
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `gemma4`, and of its projector."""
    text = fields_from_gguf(data)
    inputs = gemma4u.gguf_input_fields(data, gemma4_images.UNIFIED_PROJECTOR, text["hidden"])
    return Config(**text, **inputs, image_blocks=True)


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the processor's settings, as for Gemma 4, for pixels from 0 to 1."""
    side, grid = config.image.patch, ImageGrid(config.patch_size, config.merged_patches)
    data.fixed(model_patch_size=side)
    settings = gemma4v.image_input(grid, config.table_side, data, both_ways=config.has_blocks)
    zeros, ones = (0.0,) * CHANNELS, (1.0,) * CHANNELS
    return replace(settings, patch=side, merged=1, mean=zeros, std=ones)


def sound_input(config: Config, data: ConfigJson) -> SoundInput:
    """Read the settings of the feature extractor, which cuts samples into frames."""
    assert config.sound is not None, "an architecture asks models that read sound"
    frame = config.sound.width
    data.fixed(
        feature_size=frame, audio_samples_per_token=frame, sampling_rate=16_000, padding_value=0.0
    )
    data.ignore(
        "feature_extractor_type", "padding_side", "return_attention_mask", "processor_class"
    )
    return gemma4_sound.sound_rows("samples", config.sound)


ARCHITECTURE = Architecture(
    name="gemma4-unified",
    gguf_name="gemma4",
    config=Config,
    model_types=("gemma4_unified",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma4Unified,
    images=image_input,
    sound=sound_input,
    tensors=replace(gemma4.ARCHITECTURE.tensors, others=(), towers=gemma4u.input_names()),
)
