"""Qwen2-Audio: Whisper's encoder, halved once more, in front of Qwen2.

Source: "Qwen2-Audio Technical Report" (Chu et al., 2024), and the model `qwen2_audio` of
transformers. The encoder hears 30 s. No state sees the silence after a sound, but the convolutions
do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle import TranscriptPrompts
from hearthd.models.config import SoundShape
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_gguf_metadata
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.families.llama import Llama
from hearthd.models.families.qwen2 import qwen_fields
from hearthd.models.towers import whisper_tower
from hearthd.models.towers.whisper_encoder import Encoder

if TYPE_CHECKING:
    from hearthd.bundle import SoundInput
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

POOLED = 2  # states of a row
# Frames behind a sound that the convolutions read for its last state.
MARGIN = 2
# As in the model's own evaluation.
_TRANSCRIPTS = TranscriptPrompts(
    any_language="{sound}Detect the language and recognize the speech:",
    one_language="{sound}Detect the language and recognize the speech: <|{code}|>",
)


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig, whisper_tower.WhisperTowerConfig):
    """The shape of a model."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_encoder(POOLED)

    @property
    @override
    def sound(self) -> SoundShape:
        """Frames of a spectrogram."""
        return SoundShape(self.sound_mels, whisper_tower.HALVED * POOLED, MARGIN)


class Projector(nn.Module):
    """To the text model."""

    def __init__(self, sound_hidden: int, hidden: int) -> None:
        self.linear = nn.Linear(sound_hidden, hidden, bias=True)

    def __call__(self, h: Tensor) -> Tensor:
        """(N, E_a) -> (N, E)."""
        return self.linear(h)


class Qwen2Audio(Llama):
    """Qwen2 with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.sound_tower = Encoder(config.encoder)
        self.sound_projector = Projector(config.sound_hidden, config.hidden)

    def read_sound(self, frames: Tensor, count: Tensor) -> Tensor:
        """Rows of embeddings of a spectrogram (T, mels).

        count  frames of the sound and the margin behind it, i32 (1,)
        """
        tower, stem = self.sound_tower, self.sound_tower.stem(frames)
        h = f.narrow(stem, 0, 0, stem.shape[0] - MARGIN // whisper_tower.HALVED)
        h = tower.blocks(h, whisper_tower.halved(count - MARGIN))
        return self.sound_projector(tower.layer_norm(whisper_tower.mean_of_pairs(h)))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, whose text model leaves sizes out that are the usual ones."""
    data.ignore("audio_token_index", "ignore_index", "vocab_size")
    text, audio = data.text_section(tied=False), data.section("audio_config")
    text.fixed(model_type="qwen2", use_mrope=False)
    text.assume(
        hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32
    )
    audio.fixed(model_type="qwen2_audio_encoder")
    fields = qwen_fields(text) | {"attention_bias": True}
    return Config(**fields, **whisper_tower.encoder_fields(audio))


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `qwen2`, and of its projector."""
    text = from_gguf_metadata(data)
    keys = whisper_tower.projector_keys(data, "qwen2a", text["hidden"], "mm.a.fc.weight")
    return Config(**text, **whisper_tower.gguf_encoder_fields(data, keys))


def sound_input(config: Config, data: ConfigJson) -> SoundInput:
    """Read the settings of the feature extractor."""
    start, placeholder, end = "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"
    return whisper_tower.sound_input(
        config, config.sound, data,
        marker=start + placeholder + end, start=start, placeholder=placeholder, end=end,
        transcripts=_TRANSCRIPTS,
    )  # fmt: skip


ARCHITECTURE = Architecture(
    name="qwen2audio",
    gguf_name="qwen2",
    config=Config,
    model_types=("qwen2_audio",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen2Audio,
    sound=sound_input,
    tensors=TensorNames(
        prefixes=("language_model.model.", "model.language_model."),
        towers={
            "sound_tower": whisper_tower.encoder_names("audio_tower.", "model.audio_tower."),
            "sound_projector": TensorNames(
                gguf={"linear": "fc"},
                gguf_prefix="mm.a.",
                prefixes=("multi_modal_projector.", "model.multi_modal_projector."),
            ),
        },
    ),
)
