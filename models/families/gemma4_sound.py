"""Gemma 4 E2B and E4B with images and sound: a tower for each, and causal attention.

Source: the model `gemma4` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle import SoundInput, TranscriptPrompts
from hearthd.models.config import OtherFamily
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families import gemma4_images
from hearthd.models.towers import gemma4a, gemma4v

if TYPE_CHECKING:
    from hearthd.bundle import SoundFeatures
    from hearthd.models.config import SoundShape
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_ROWS = 750  # of 30 s
_TASK = "{sound}Transcribe the following speech segment in "
_FORM = (
    "\n\nFollow these specific instructions for formatting the answer:\n"
    "* Only output the transcription, with no newlines.\n"
    "* When transcribing numbers, write the digits, i.e. write 1.7 and not one point seven, and "
    "write 3 instead of three."
)
# As in the model's card, which translates after a transcript in the same answer.
_TRANSCRIPTS = TranscriptPrompts(
    any_language=f"{_TASK}its original language.{_FORM}",
    one_language=f"{_TASK}{{language}} into {{language}} text.{_FORM}",
)


@dataclass(frozen=True, kw_only=True)
class Config(gemma4a.SoundTowerConfig, gemma4_images.Config):
    """The shape of a model."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sound_layers()
        if self.layer_embedding is None:
            raise OtherFamily("sound: supported are models with embeddings for layers: E2B, E4B")


class Gemma4Sound(gemma4_images.EmbeddingGemma4Images):
    """Gemma 4 with two towers."""

    def __init__(self, config: Config) -> None:
        assert config.layer_embedding is not None, "a configuration checks it"
        super().__init__(config, config.layer_embedding)
        self.sound_tower = gemma4a.Tower(config)
        self.sound_projector = gemma4v.Projector(
            config.sound_width, config.hidden, config.sound_norm_eps
        )

    def read_sound(self, frames: Tensor, count: Tensor) -> Tensor:
        """Rows of embeddings (T / 4, E) of a spectrogram (T, mels): see `gemma4a.Tower`."""
        return self.sound_projector(self.sound_tower(frames, count))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    if not data.has("audio_config"):
        raise OtherFamily("sound: config.json has no audio_config")
    fields = gemma4_images.fields_with_tower(data)
    return Config(**fields, **gemma4a.sound_fields(data.section("audio_config")))


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `gemma4`, and of its projector."""
    fields = gemma4_images.gguf_fields_with_tower(data)
    keys = data.projector(
        "gemma4a", fields["hidden"], "mm.a.input_projection.weight", axis=0, tower="audio"
    )
    return Config(**fields, **gemma4a.gguf_sound_fields(data, keys))


def sound_input(config: Config, data: ConfigJson) -> SoundInput:
    """Read the settings of the feature extractor; runtime/media/sound_features.py has the same."""
    data.fixed(
        feature_size=config.sound_mels, sampling_rate=16_000, frame_length=320, hop_length=160,
        fft_length=512, fft_overdrive=False, min_frequency=0.0, max_frequency=8000.0,
        mel_floor=1e-3, preemphasis=0.0, dither=0.0, input_scale_factor=1.0, per_bin_mean=None,
        per_bin_stddev=None, padding_value=0.0,
    )  # fmt: skip
    data.ignore(
        "feature_extractor_type", "padding_side", "preemphasis_htk_flavor",
        "return_attention_mask", "processor_class",
    )  # fmt: skip
    return sound_rows("log_mel", config.sound)


def sound_rows(features: SoundFeatures, shape: SoundShape) -> SoundInput:
    """What Gemma 4 reads of sound, with the tokens around its rows."""
    return SoundInput(
        features=features,
        width=shape.width,
        frames=shape.frames,
        max_rows=_ROWS,
        marker="<|audio|>",
        start="<|audio>",
        placeholder="<|audio|>",
        end="<audio|>",
        transcripts=_TRANSCRIPTS,
    )


def _tensors() -> TensorNames:
    names = gemma4_images.ARCHITECTURE.tensors
    towers = {
        **names.towers,
        "sound_tower": gemma4a.sound_names("model.audio_tower.", "audio_tower."),
        "sound_projector": TensorNames(
            gguf={"embedding_projection": "input_projection"},
            gguf_prefix="mm.a.",
            prefixes=("model.embed_audio.", "embed_audio."),
        ),
    }
    return replace(names, others=(), towers=towers)


ARCHITECTURE = Architecture(
    name="gemma4-sound",
    gguf_name="gemma4",
    config=Config,
    model_types=("gemma4",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma4Sound,
    images=gemma4_images.image_input,
    sound=sound_input,
    tensors=_tensors(),
)
