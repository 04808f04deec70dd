"""Whisper: an encoder of sound, and a decoder that writes what was said.

Source: "Robust Speech Recognition via Large-Scale Weak Supervision" (Radford et al., 2022), and the
model `whisper` of transformers. `S` is states of the encoder, `N` tokens, `E` the hidden width, `H`
heads, `D` the width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import MAX_LAYERS, ConfigError, ModelConfig
from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.speech.speech_architecture import SpeechArchitecture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.speech.heard import Heard

_TAPS = 3  # columns that a convolution reads at a time


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """The shape of a model; the fields of `ModelConfig` describe the decoder.

    mels            rows of a spectrogram
    states          S, the hidden states of the encoder: one for each two columns of a spectrogram
    encoder_layers  and the others: the shape of the encoder, which is as wide as the decoder
    """

    mels: int
    states: int
    encoder_layers: int
    encoder_ffn: int
    encoder_heads: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder_layers > MAX_LAYERS:
            raise ConfigError(f"{self.encoder_layers} layers, expected at most {MAX_LAYERS}")
        for heads in (self.heads, self.encoder_heads):
            if self.hidden % heads:
                raise ConfigError(f"{heads} heads cannot share a width of {self.hidden}")


class Attention(nn.Module):
    """Attention to the layer's hidden states, or to the encoder's."""

    def __init__(self, hidden: int, heads: int) -> None:
        width = hidden // heads
        self.scale = width**-0.5
        self.q_proj = HeadLinear(hidden, heads, width, bias=True)
        self.k_proj = HeadLinear(hidden, heads, width)
        self.v_proj = HeadLinear(hidden, heads, width, bias=True)
        self.out_proj = nn.Linear(hidden, hidden, bias=True)

    def everywhere(self, x: Tensor) -> Tensor:
        """Attention of each state to every state, (S, E) -> (S, E)."""
        key, value = (
            ops.reshape(project(x), shape=x.shape) for project in (self.k_proj, self.v_proj)
        )
        mixed = f.full_attention(self.q_proj(x), key, value, scale=self.scale)
        return self.out_proj(ops.reshape(mixed, shape=x.shape))

    def earlier(self, x: Tensor, cache: LayerCache) -> Tensor:
        """Attention of each token to those before it, (N, E) -> (N, E)."""
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.out_proj(cache.attend(query, key, value, scale=self.scale))

    def heard(self, x: Tensor, heard: Heard) -> Tensor:
        """Attention of each token to the states of the encoder, (N, E) -> (N, E)."""
        return self.out_proj(heard.attend(self.q_proj(x), scale=self.scale))


class Block(nn.Module):
    """The base of encoder and decoder layers: attention and an MLP."""

    def __init__(self, hidden: int, heads: int, ffn: int, eps: float) -> None:
        self.self_attn = Attention(hidden, heads)
        self.self_attn_layer_norm = nn.LayerNorm(hidden, eps)
        self.fc1 = nn.Linear(hidden, ffn, bias=True)
        self.fc2 = nn.Linear(ffn, hidden, bias=True)
        self.final_layer_norm = nn.LayerNorm(hidden, eps)

    def mlp(self, h: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return h + self.fc2(f.gelu(self.fc1(self.final_layer_norm(h))))


class EncoderBlock(Block):
    """A layer of the encoder."""

    def __call__(self, h: Tensor) -> Tensor:
        """(S, E) -> (S, E)."""
        return self.mlp(h + self.self_attn.everywhere(self.self_attn_layer_norm(h)))


class DecoderBlock(Block):
    """A layer of the decoder."""

    def __init__(self, hidden: int, heads: int, ffn: int, eps: float) -> None:
        super().__init__(hidden, heads, ffn, eps)
        self.encoder_attn = Attention(hidden, heads)
        self.encoder_attn_layer_norm = nn.LayerNorm(hidden, eps)

    def __call__(self, h: Tensor, cache: LayerCache, heard: Heard) -> Tensor:
        """(N, E) -> (N, E)."""
        h = h + self.self_attn.earlier(self.self_attn_layer_norm(h), cache)
        return self.mlp(h + self.encoder_attn.heard(self.encoder_attn_layer_norm(h), heard))


class Encoder(nn.Module):
    """Two convolutions and blocks: a spectrogram to hidden states."""

    def __init__(self, config: Config) -> None:
        hidden, eps = config.hidden, config.norm_eps
        self.conv1 = nn.Linear(config.mels * _TAPS, hidden, bias=True)
        self.conv2 = nn.Linear(hidden * _TAPS, hidden, bias=True)
        self.embed_positions = nn.Embedding(config.states, hidden)
        self.layers = [
            EncoderBlock(hidden, config.encoder_heads, config.encoder_ffn, eps)
            for _ in range(config.encoder_layers)
        ]
        self.layer_norm = nn.LayerNorm(hidden, eps)

    def __call__(self, spectrogram: Tensor) -> Tensor:
        """f32 (mels, 2 S) -> (S, E)."""
        x = ops.transpose(spectrogram, order=(1, 0))
        x = f.gelu(self.conv1(neighbors(x, stride=1)))
        h = f.gelu(self.conv2(neighbors(x, stride=2))) + self.embed_positions.weight
        for block in self.layers:
            h = block(h)
        return self.layer_norm(h)


class Decoder(nn.Module):
    """Tokens to hidden states."""

    def __init__(self, config: Config) -> None:
        hidden, eps = config.hidden, config.norm_eps
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.embed_positions = nn.Embedding(config.max_context, hidden)
        self.layers = [
            DecoderBlock(hidden, config.heads, config.ffn, eps) for _ in range(config.layers)
        ]
        self.layer_norm = nn.LayerNorm(hidden, eps)

    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], heard: Sequence[Heard]
    ) -> Tensor:
        """Tokens i32 (N,) at positions i32 (N,) -> normalized hidden states (N, E)."""
        h = self.embed_tokens(tokens) + ops.gather(self.embed_positions.weight, positions, axis=0)
        for block, cache, sound in zip(self.layers, caches, heard, strict=True):
            h = block(h, cache, sound)
        return self.layer_norm(h)


class Whisper(nn.Module):
    """The whole model; the output head is the embedding table."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def hear(self, spectrogram: Tensor) -> list[tuple[Tensor, Tensor]]:
        """f32 (mels, 2 S) -> keys and values of each layer of the decoder, each (S, H, D)."""
        states = self.encoder(spectrogram)
        attentions = [block.encoder_attn for block in self.decoder.layers]
        return [(each.k_proj(states), each.v_proj(states)) for each in attentions]

    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], heard: Sequence[Heard]
    ) -> Tensor:
        """Tokens i32 (N,) at positions i32 (N,) -> normalized hidden states (N, E)."""
        return self.decoder(tokens, positions, caches, heard)

    def logits(self, x: Tensor) -> Tensor:
        """Normalized hidden states (N, E) -> logits (N, V)."""
        return self.decoder.embed_tokens.logits(x)


def neighbors(x: Tensor, *, stride: int) -> Tensor:
    """Each row of (N, C) with the rows before and after it, zeros outside.

    Returns (N / stride, C * 3) for every `stride`-th row, as a convolution's weight (O, C, 3) has
    its columns.
    """
    rows, width = x.shape
    zero = ops.full_like(f.narrow(x, 0, 0, 1), 0.0)
    padded = ops.concatenate(zero, x, zero, axis=0)
    taps = [f.narrow(padded, 0, tap, tap + rows) for tap in range(_TAPS)]
    stacked = ops.concatenate(*(f.unsqueeze(tap, axis=2) for tap in taps), axis=2)
    joined = ops.reshape(stacked, shape=(rows // stride, stride, width * _TAPS))
    return ops.reshape(f.narrow(joined, 1, 0, 1), shape=(rows // stride, width * _TAPS))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(
        activation_function="gelu", scale_embedding=False, is_encoder_decoder=True,
        tie_word_embeddings=True,
    )  # fmt: skip
    data.ignore(
        "activation_dropout", "apply_spec_augment", "begin_suppress_tokens", "bos_token_id",
        "classifier_proj_size", "decoder_layerdrop", "decoder_start_token_id", "dropout",
        "encoder_layerdrop", "forced_decoder_ids", "init_std", "mask_feature_length",
        "mask_feature_min_masks", "mask_feature_prob", "mask_time_length", "mask_time_min_masks",
        "mask_time_prob", "max_length", "median_filter_width", "num_hidden_layers",
        "suppress_tokens", "use_weighted_layer_sum", "is_decoder", "cross_attention_hidden_size",
        "add_cross_attention", "alignment_heads",
    )  # fmt: skip
    hidden, heads = data.size("d_model"), data.size("decoder_attention_heads")
    shape: dict[str, Any] = {
        "layers": data.size("decoder_layers", limit=MAX_LAYERS),
        "hidden": hidden,
        "ffn": data.size("decoder_ffn_dim"),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": max(1, hidden // heads),
        "max_context": data.size("max_target_positions", default=448),
        "vocab_size": data.size("vocab_size"),
        "norm_eps": 1e-5,
    }
    return Config(
        **shape,
        mels=data.size("num_mel_bins", default=80),
        states=data.size("max_source_positions", default=1500),
        encoder_layers=data.size("encoder_layers", limit=MAX_LAYERS),
        encoder_ffn=data.size("encoder_ffn_dim"),
        encoder_heads=data.size("encoder_attention_heads"),
    )


def from_gguf(_: GgufMetadata) -> Config:
    """No GGUF file holds this model; raises ConfigError."""
    raise ConfigError("general.architecture: whisper is read from a folder, not from a GGUF file")


ARCHITECTURE = SpeechArchitecture(
    name="whisper",
    config=Config,
    model_types=("whisper",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Whisper,
    tensors=TensorNames(
        prefixes=("model.", ""),
        others=("proj_out.",),  # the embedding table again
        towers={
            "encoder": TensorNames(prefixes=("model.encoder.", "encoder.")),
            "decoder": TensorNames(prefixes=("model.decoder.", "decoder.")),
        },
    ),
)
