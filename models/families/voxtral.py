"""Voxtral: Whisper's encoder in front of Llama's layers, as Ministral has them.

Source: "Voxtral" (Liu et al., 2025), and the model `voxtral` of transformers. A sound is padded
with silence to windows of 30 s, and the encoder hears one at a time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle import TranscriptPrompts
from hearthd.models.config import ConfigError, SoundShape
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_gguf_metadata
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.families import llama
from hearthd.models.towers import whisper_tower
from hearthd.models.towers.whisper_encoder import Encoder

if TYPE_CHECKING:
    from hearthd.bundle import SoundInput
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig, whisper_tower.WhisperTowerConfig):
    """The shape of a model.

    joined_states  hidden states side by side that give one row
    """

    joined_states: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_encoder(self.joined_states)

    @property
    @override
    def sound(self) -> SoundShape:
        """Frames of a spectrogram."""
        return SoundShape(self.sound_mels, whisper_tower.HALVED * self.joined_states)


class Projector(nn.Module):
    """Hidden states side by side, projected to the text model."""

    def __init__(self, config: Config) -> None:
        self.count = config.joined_states
        self.linear_1 = nn.Linear(self.count * config.sound_hidden, config.hidden)
        self.linear_2 = nn.Linear(config.hidden, config.hidden)

    def __call__(self, h: Tensor) -> Tensor:
        """Hidden states (S, E_a) -> (S / count, E)."""
        return self.linear_2(f.gelu(self.linear_1(whisper_tower.joined(h, self.count))))


class Voxtral(llama.Llama):
    """Llama with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.sound_tower = Encoder(config.encoder)
        self.sound_projector = Projector(config)

    def read_sound(self, frames: Tensor, _: Tensor) -> Tensor:
        """Rows of embeddings of the spectrogram (T, mels) of a complete window."""
        tower = self.sound_tower
        return self.sound_projector(tower.layer_norm(tower.blocks(tower.stem(frames))))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(projector_hidden_act="gelu")
    data.ignore("hidden_size", "vocab_size")  # of the text model
    text, audio = data.text_section(tied=False), data.section("audio_config")
    audio.fixed(model_type="voxtral_encoder")
    tower = whisper_tower.encoder_fields(audio)
    count, rest = divmod(tower["sound_ffn"], tower["sound_hidden"])
    if rest or not count:  # states are joined to this width
        raise ConfigError(
            f"config.json: audio_config: intermediate_size: got {tower['sound_ffn']}, expected a "
            f"multiple of {tower['sound_hidden']}"
        )
    return Config(**asdict(llama.from_hugging_face(text)), **tower, joined_states=count)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `llama`, and of its projector."""
    text = from_gguf_metadata(data)
    keys = whisper_tower.projector_keys(data, "voxtral", text["hidden"], "mm.a.mlp.2.weight")
    tower = whisper_tower.gguf_encoder_fields(data, keys)
    return Config(**text, **tower, joined_states=keys.size("audio.projector.stack_factor"))


def sound_input(config: Config, data: ConfigJson) -> SoundInput:
    """Read the settings of the feature extractor. No chat template writes a sound."""
    return whisper_tower.sound_input(
        config, config.sound, data, windows=whisper_tower.MAX_WINDOWS, padded=True,
        marker="[BEGIN_AUDIO][AUDIO]", start="[BEGIN_AUDIO]", placeholder="[AUDIO]", end="",
        transcripts=TranscriptPrompts(token="[TRANSCRIBE]"),
    )  # fmt: skip


ARCHITECTURE = Architecture(
    name="voxtral",
    gguf_name="llama",
    config=Config,
    model_types=("voxtral",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Voxtral,
    sound=sound_input,
    tensors=TensorNames(
        interleaved=QUERIES_AND_KEYS,
        prefixes=("language_model.model.", "model.language_model."),
        towers={
            "sound_tower": whisper_tower.encoder_names("audio_tower.", "model.audio_tower."),
            "sound_projector": TensorNames(
                gguf={"linear_1": "mlp.1", "linear_2": "mlp.2"},
                gguf_prefix="mm.a.",
                prefixes=("multi_modal_projector.", "model.multi_modal_projector."),
            ),
        },
    ),
)
