"""Qwen2.5-Omni's thinker: Qwen2.5-VL that hears, too, with Whisper's encoder in windows of 2 s.

Source: "Qwen2.5-Omni Technical Report" (Xu et al., 2025), and the model `qwen2_5_omni_thinker` of
transformers. A state of a window sees no other window, and positions begin again in each. The
parts that speak, talker and token2wav, are not run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.bundle import TranscriptPrompts
from hearthd.models.config import SoundShape
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.families import qwen2audio, qwen25vl_images
from hearthd.models.towers import qwen25vl, whisper_tower
from hearthd.models.towers.whisper_encoder import Encoder, sinusoids, zeros_from

if TYPE_CHECKING:
    from hearthd.bundle import GridInput, SoundInput
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_TYPE = "qwen2.5o"
_WINDOW_STATES = 100  # of 2 s
_MAX_WINDOWS = 150  # 5 minutes, as the processor pads a sound to
_SPEAKERS = ("enable_audio_output", "enable_talker", "talker_config", "token2wav_config")
_TOKENS = (
    "audio_end_token_id", "audio_start_token_id", "audio_token_index", "ignore_index", "init_std",
    "position_id_per_seconds", "seconds_per_chunk", "user_token_id", "video_token_index",
    "vision_token_id",
)  # fmt: skip
# As in the authors' examples.
_TRANSCRIPTS = TranscriptPrompts(
    any_language="{sound}Transcribe the audio into text.",
    one_language="{sound}Transcribe the {language} audio into text.",
    english="{sound}Translate the audio into English text.",
)


@dataclass(frozen=True, kw_only=True)
class Config(qwen25vl_images.Config, whisper_tower.WhisperTowerConfig):
    """The shape of a model."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_encoder(qwen2audio.POOLED)

    @property
    @override
    def sound(self) -> SoundShape:
        """Frames of a spectrogram."""
        frames = whisper_tower.HALVED * qwen2audio.POOLED
        return SoundShape(self.sound_mels, frames, qwen2audio.MARGIN)


class WindowEncoder(Encoder):
    """Whisper's encoder of one window, whose positions are sines and cosines."""

    learns_positions = False

    def rows(self, frames: Tensor, count: Tensor) -> Tensor:
        """(T / 4, E) of a spectrogram (T + 2, mels), whose first `count` i32 (1,) are sound."""
        stem = self.stem(zeros_from(frames, count), count)
        h = f.narrow(stem, 0, 0, stem.shape[0] - qwen2audio.MARGIN // whisper_tower.HALVED)
        h = self.blocks(h, whisper_tower.halved(count))
        return self.layer_norm(whisper_tower.mean_of_pairs(h))

    @override
    def positions(self, states: int) -> Tensor:
        return sinusoids(states, self.conv2.weight.shape[0])


class Qwen25Omni(qwen25vl_images.Qwen25VlImages):
    """Qwen2.5-VL with a tower for sound."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.sound_tower = WindowEncoder(config.encoder)
        self.sound_projector = qwen2audio.Projector(config.sound_hidden, config.hidden)

    def read_sound(self, frames: Tensor, count: Tensor) -> Tensor:
        """Rows of embeddings of a window (T, mels), with a margin of the next one behind it.

        count  frames of the sound and the margin, i32 (1,)
        """
        return self.sound_projector(self.sound_tower.rows(frames, count - qwen2audio.MARGIN))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, of the whole model or of the thinker alone."""
    data.ignore(*_SPEAKERS)
    thinker = data.section("thinker_config") if data.has("thinker_config") else data
    thinker.ignore(*_TOKENS)
    thinker.assume(tie_word_embeddings=False)
    text, audio = thinker.text_section(tied=None), thinker.section("audio_config")
    text.ignore("init_std")
    fields = qwen25vl_images.text_and_sections(thinker)
    vision, width = thinker.section("vision_config"), fields["hidden"]
    vision.ignore("embed_dim", "init_std")
    audio.fixed(output_dim=width)
    audio.ignore("init_std")
    states = audio.size("n_window", default=_WINDOW_STATES)
    sound = {**whisper_tower.encoder_fields(audio), "sound_states": states}
    return Config(**fields, **qwen25vl.tower_fields(vision, width), **sound)


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model, `qwen2vl`, and of its projector."""
    fields = qwen25vl_images.gguf_text_and_sections(data)
    width = fields["hidden"]
    images = data.projector(_TYPE, width, "mm.2.weight", axis=0, activation="silu")
    sound = data.projector(_TYPE, width, "mm.a.fc.weight", axis=0, tower="audio")
    heard = {**whisper_tower.gguf_encoder_fields(data, sound), "sound_states": _WINDOW_STATES}
    return Config(**fields, **qwen25vl.gguf_tower_fields(images), **heard)


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the processor's settings: Qwen2.5-VL's, with other names of tokens."""
    start, placeholder, end = "<|vision_bos|>", "<|IMAGE|>", "<|vision_eos|>"
    return replace(
        qwen25vl_images.image_input(config, data),
        marker=start + placeholder + end, start=start, placeholder=placeholder, end=end,
    )  # fmt: skip


def sound_input(config: Config, data: ConfigJson) -> SoundInput:
    """Read the settings of the feature extractor."""
    start, placeholder, end = "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"
    return whisper_tower.sound_input(
        config, config.sound, data, windows=_MAX_WINDOWS,
        marker=start + placeholder + end, start=start, placeholder=placeholder, end=end,
        transcripts=_TRANSCRIPTS,
    )  # fmt: skip


def _tensors() -> TensorNames:
    visual, heard = (
        tuple(f"{prefix}{name}." for prefix in ("thinker.", "model.", ""))
        for name in ("visual", "audio_tower")
    )
    matrices = {f"{part}_proj": f"attn.{part}" for part in "qkv"}
    sound: dict[str, Any] = {"folder": {"layer_norm": "ln_post"}, "prefixes": heard}
    towers = {
        **qwen25vl.tower_names(*visual, attention=matrices),
        "sound_tower": replace(whisper_tower.encoder_names(), **sound),
        "sound_projector": TensorNames(
            gguf={"linear": "fc"}, gguf_prefix="mm.a.", folder={"linear": "proj"}, prefixes=heard
        ),
    }
    return replace(
        qwen25vl_images.names_with(towers),
        prefixes=("thinker.model.", "model.language_model.", "model.", ""),
        others=("talker.", "token2wav."),
        masks=("audio_bos_eos_token.weight", "a.position_embd.weight"),
    )


ARCHITECTURE = Architecture(
    name="qwen25omni",
    gguf_name="qwen2vl",
    config=Config,
    model_types=("qwen2_5_omni", "qwen2_5_omni_thinker"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen25Omni,
    images=image_input,
    sound=sound_input,
    tensors=_tensors(),
)
