"""Ultravox: Whisper's encoder in front of Llama.

Source: `ultravox_model.py` of fixie-ai/ultravox (2025). The encoder hears windows of 30 s, and the
last one without padding: its states see no frame after the sound.
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
from hearthd.models.towers.whisper_encoder import Encoder, zeros_from

if TYPE_CHECKING:
    from hearthd.bundle import SoundInput
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_EPS = 1e-6  # of the projector's norms
_PARTS = ("audio_model_id", "text_model_id")
# As in the model's training data; the language is an addition.
_TRANSCRIPTS = TranscriptPrompts(
    any_language="Transcribe\n{sound}",
    one_language="Transcribe in {language}\n{sound}",
    english="Please translate the text to English. Your response should only include the English "
    "translation, without any additional words:\n\n{sound}",
)


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig, whisper_tower.WhisperTowerConfig):
    """The shape of a model.

    joined_states    hidden states side by side that give one row
    projector_width  between the matrices of the projector
    """

    joined_states: int
    projector_width: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_encoder(states=1)

    @property
    @override
    def sound(self) -> SoundShape:
        """Frames of a spectrogram."""
        return SoundShape(self.sound_mels, whisper_tower.HALVED * self.joined_states)


class Projector(nn.Module):
    """Hidden states side by side, and a gated MLP with norms to the text model."""

    def __init__(self, config: Config) -> None:
        self.count, inner = config.joined_states, config.projector_width
        joined = self.count * config.sound_hidden
        self.ln_pre = nn.RMSNorm(joined, _EPS)
        self.linear_1 = nn.Linear(joined, 2 * inner)
        self.ln_mid = nn.RMSNorm(inner, _EPS)
        self.linear_2 = nn.Linear(inner, config.hidden)

    def __call__(self, h: Tensor) -> Tensor:
        """Hidden states (S, E_a) -> (S / count, E)."""
        both = self.linear_1(self.ln_pre(whisper_tower.joined(h, self.count)))
        x, gate = f.chunk(both, 2, axis=1)
        return self.linear_2(self.ln_mid(f.silu(gate) * x))


class Ultravox(llama.Llama):
    """Llama with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.sound_tower = Encoder(config.encoder)
        self.sound_projector = Projector(config)

    def read_sound(self, frames: Tensor, count: Tensor) -> Tensor:
        """Rows of embeddings of a spectrogram (T, mels) whose first `count` i32 (1,) are sound."""
        tower, states = self.sound_tower, whisper_tower.halved(count)
        h = tower.layer_norm(tower.blocks(tower.stem(frames, count), states))
        return self.sound_projector(zeros_from(h, states))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json of a folder with all weights: published ones have the projector's alone."""
    for key in _PARTS:
        if data.has(key):
            raise ConfigError(
                f"config.json: {key}: got {data.text(key, default='')!r:.80}: the folder has no "
                "text model; use the GGUF files of this model, with --mmproj"
            )
    data.fixed(
        projector_act="swiglu", projector_ln_mid=True, audio_latency_block_size=None,
    )  # fmt: skip
    data.ignore(
        "audio_model_lora_config", "audio_token_index", "ignore_index", "llm_only_training",
        "norm_init", "text_model_lora_config", "vocab_size",
    )  # fmt: skip
    inner = data.size("hidden_size", default=4096) // 2
    count = data.size("stack_factor", default=8)
    text, audio = data.text_section(tied=None), data.section("audio_config")
    text.fixed(model_type="llama")
    text.assume(tie_word_embeddings=False)
    return Config(
        **asdict(llama.from_hugging_face(text)),
        **whisper_tower.encoder_fields(audio),
        joined_states=count,
        projector_width=inner,
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `llama`, and of its projector."""
    text = from_gguf_metadata(data)
    keys = whisper_tower.projector_keys(data, "ultravox", text["hidden"], "mm.a.mlp.2.weight")
    return Config(
        **text,
        **whisper_tower.gguf_encoder_fields(data, keys),
        joined_states=keys.size("audio.projector.stack_factor"),
        projector_width=data.rows("mm.a.mlp.2.weight", axis=1),
    )


def sound_input(config: Config, data: ConfigJson) -> SoundInput:
    """Read the settings of the feature extractor.

    The text model has no token for sound: an unused one stands for the rows.
    """
    return whisper_tower.sound_input(
        config, config.sound, data, windows=whisper_tower.MAX_WINDOWS,
        marker="<|audio|>", start="", placeholder="<|reserved_special_token_0|>", end="",
        transcripts=_TRANSCRIPTS,
    )  # fmt: skip


ARCHITECTURE = Architecture(
    name="ultravox",
    gguf_name="llama",
    config=Config,
    model_types=("ultravox",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Ultravox,
    sound=sound_input,
    tensors=TensorNames(
        interleaved=QUERIES_AND_KEYS,
        prefixes=("language_model.model.",),
        towers={
            "sound_tower": whisper_tower.encoder_names("audio_tower."),
            "sound_projector": TensorNames(
                gguf={
                    "ln_pre": "norm_pre",
                    "linear_1": "mlp.1",
                    "ln_mid": "norm_mid",
                    "linear_2": "mlp.2",
                },
                gguf_prefix="mm.a.",
                prefixes=("multi_modal_projector.",),
            ),
        },
    ),
)
