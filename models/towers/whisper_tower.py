"""What models that hear with Whisper's encoder share: their configuration, names and settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.bundle import SoundInput
from hearthd.models.config import MAX_LAYERS, ConfigError, OtherFamily
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.types import DType
from hearthd.models.towers.whisper_encoder import EncoderShape

if TYPE_CHECKING:
    from hearthd.models.config import SoundShape
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

HALVED = 2  # frames of a hidden state
# What a conversation can hold of a long sound, and the server decodes at once: 10 minutes.
MAX_WINDOWS = 20
_TYPES = frozenset(("qwen2a", "ultravox", "voxtral"))  # in projectors
# Keys of training, and of the object in transformers.
_UNUSED = (
    "activation_dropout", "attention_dropout", "dropout", "encoder_layerdrop", "init_std",
    "initializer_range", "layerdrop", "vocab_size",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WhisperTowerConfig:
    """The shape of the encoder, as fields of the configuration of a model that has one.

    sound_mels    bands of a spectrogram
    sound_states  hidden states of a window of 30 s
    """

    sound_mels: int
    sound_states: int
    sound_layers: int
    sound_hidden: int
    sound_ffn: int
    sound_heads: int
    sound_norm_eps: float

    @property
    def encoder(self) -> EncoderShape:
        """The shape of the encoder."""
        return EncoderShape(
            mels=self.sound_mels,
            states=self.sound_states,
            layers=self.sound_layers,
            hidden=self.sound_hidden,
            ffn=self.sound_ffn,
            heads=self.sound_heads,
            norm_eps=self.sound_norm_eps,
        )

    def require_encoder(self, states: int) -> None:
        """Raise ConfigError for heads of unequal parts, or a window of incomplete rows.

        states  that give one row; 1: a window may end within a row
        """
        if self.sound_layers > MAX_LAYERS:
            raise ConfigError(f"{self.sound_layers} layers, expected at most {MAX_LAYERS}")
        if self.sound_hidden % self.sound_heads:
            raise ConfigError(
                f"{self.sound_heads} heads cannot share a tower's width of {self.sound_hidden}"
            )
        if self.sound_states % states:
            raise ConfigError(
                f"{self.sound_states} states of a window of sound, expected a multiple of {states}"
            )


def halved(count: Tensor) -> Tensor:
    """The states of some frames i32 (1,): half as many, rounded up."""
    half = (ops.convert(count, dtype=DType.F32) + 1.0) * (1 / HALVED)
    return ops.convert(ops.floor(half), dtype=DType.I32)


def joined(h: Tensor, count: int) -> Tensor:
    """Each `count` states (S, E) side by side: (S / count, count * E)."""
    states, width = h.shape
    return ops.reshape(h, shape=(states // count, count * width))


def mean_of_pairs(h: Tensor) -> Tensor:
    """The means of each two states (S, E): (S / 2, E)."""
    pairs = ops.reshape(h, shape=(h.shape[0] // 2, 2, h.shape[1]))
    return f.mean(pairs, 1)


def encoder_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `WhisperTowerConfig`, from the object of config.json; raises ConfigError.

    Objects name sizes as Whisper or as later models do.
    """
    data.rename(
        d_model="hidden_size",
        encoder_layers="num_hidden_layers",
        encoder_attention_heads="num_attention_heads",
        encoder_ffn_dim="intermediate_size",
    )
    data.fixed(activation_function="gelu", scale_embedding=False)
    data.ignore(*_UNUSED)
    return {
        "sound_mels": data.size("num_mel_bins", default=128),
        "sound_states": data.size("max_source_positions", default=1500),
        "sound_layers": data.size("num_hidden_layers", default=32),
        "sound_hidden": data.size("hidden_size", default=1280),
        "sound_ffn": data.size("intermediate_size", default=5120),
        "sound_heads": data.size("num_attention_heads", default=20),
        "sound_norm_eps": 1e-5,
    }


def projector_keys(data: GgufMetadata, type_: str, hidden: int, tensor: str) -> ProjectorMetadata:
    """The keys of a projector of a type, whose last matrix is `tensor`.

    Raises OtherFamily for a type of another model with this encoder, or ConfigError.
    """
    if data.sound_projector_type in _TYPES - {type_}:
        raise OtherFamily(
            f"clip.projector_type: got {data.sound_projector_type}, supported is {type_}"
        )
    return data.projector(type_, hidden, tensor, axis=0, tower="audio")


def gguf_encoder_fields(data: GgufMetadata, keys: ProjectorMetadata) -> dict[str, Any]:
    """The fields of `WhisperTowerConfig`, from the keys and tensors of a projector."""
    return {
        "sound_mels": keys.size("audio.num_mel_bins"),
        "sound_states": data.rows("a.position_embd.weight"),
        "sound_layers": keys.size("audio.block_count"),
        "sound_hidden": keys.size("audio.embedding_length"),
        "sound_ffn": keys.size("audio.feed_forward_length"),
        "sound_heads": keys.size("audio.attention.head_count"),
        "sound_norm_eps": keys.number("audio.attention.layer_norm_epsilon"),
    }


def sound_input(
    config: WhisperTowerConfig, shape: SoundShape, data: ConfigJson, **settings: Any
) -> SoundInput:
    """Read the settings of a WhisperFeatureExtractor; runtime/media/log_mel.py has the same."""
    frames = HALVED * config.sound_states
    data.fixed(
        feature_size=config.sound_mels, sampling_rate=16_000, hop_length=160, n_fft=400,
        padding_value=0.0, dither=0.0,
    )  # fmt: skip
    # The table of positions says how long a window is.
    data.ignore(
        "chunk_length", "feature_extractor_type", "n_samples", "nb_max_frames", "padding_side",
        "processor_class", "return_attention_mask", "mel_filters",
    )  # fmt: skip
    return SoundInput(
        features="whisper",
        width=config.sound_mels,
        frames=shape.frames,
        max_rows=-(-frames // shape.frames),
        window=frames,
        margin=shape.margin,
        **settings,
    )


def encoder_names(*prefixes: str) -> TensorNames:
    """The names of the encoder's tensors, in folders after one of the prefixes."""
    return TensorNames(
        gguf={
            "conv1": "conv1d.1",
            "conv2": "conv1d.2",
            "embed_positions": "position_embd",
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.out_proj": "attn_out",
            "self_attn_layer_norm": "ln1",
            "fc1": "ffn_up",
            "fc2": "ffn_down",
            "final_layer_norm": "ln2",
            "layer_norm": "post_ln",
        },
        gguf_prefix="a.",
        prefixes=prefixes,
    )
