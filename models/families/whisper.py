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
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import nn, ops
from hearthd.models.speech.speech_architecture import SpeechArchitecture
from hearthd.models.towers.whisper_encoder import (
    Encoder,
    EncoderAttention,
    EncoderMLP,
    EncoderShape,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.speech.heard import Heard


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

    @property
    def encoder(self) -> EncoderShape:
        """The shape of the encoder."""
        return EncoderShape(
            mels=self.mels,
            states=self.states,
            layers=self.encoder_layers,
            hidden=self.hidden,
            ffn=self.encoder_ffn,
            heads=self.encoder_heads,
            norm_eps=self.norm_eps,
        )

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder_layers > MAX_LAYERS:
            raise ConfigError(f"{self.encoder_layers} layers, expected at most {MAX_LAYERS}")
        for heads in (self.heads, self.encoder_heads):
            if self.hidden % heads:
                raise ConfigError(f"{heads} heads cannot share a width of {self.hidden}")


class Attention(EncoderAttention):
    """Attention to the layer's hidden states, or to the encoder's."""

    def earlier(self, x: Tensor, cache: LayerCache) -> Tensor:
        """Attention of each token to those before it, (N, E) -> (N, E)."""
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.out_proj(cache.attend(query, key, value, scale=self.scale))

    def heard(self, x: Tensor, heard: Heard) -> Tensor:
        """Attention of each token to the states of the encoder, (N, E) -> (N, E)."""
        return self.out_proj(heard.attend(self.q_proj(x), scale=self.scale))


class DecoderBlock(EncoderMLP):
    """A layer of the decoder."""

    def __init__(self, hidden: int, heads: int, ffn: int, eps: float) -> None:
        super().__init__(hidden, ffn, eps)
        self.self_attn = Attention(hidden, heads)
        self.self_attn_layer_norm = nn.LayerNorm(hidden, eps)
        self.encoder_attn = Attention(hidden, heads)
        self.encoder_attn_layer_norm = nn.LayerNorm(hidden, eps)

    def __call__(self, h: Tensor, cache: LayerCache, heard: Heard) -> Tensor:
        """(N, E) -> (N, E)."""
        h = h + self.self_attn.earlier(self.self_attn_layer_norm(h), cache)
        return self.mlp(h + self.encoder_attn.heard(self.encoder_attn_layer_norm(h), heard))


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
        self.encoder = Encoder(config.encoder)
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
