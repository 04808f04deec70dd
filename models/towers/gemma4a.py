"""Gemma 4's tower for sound: a Conformer over a log-mel spectrogram.

Source: the model `gemma4_audio` of transformers (2026). `T` is frames, `N` = T / 4 positions, `E`
the hidden width of the tower, `H` heads, `D` the width of a head, `C` the positions that one sees:
itself and those before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.config import MAX_LAYERS, ConfigError, SoundShape
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.towers.gemma4v import ClippedLinear

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

FRAMES = 4  # of a position
_MAX_PERIOD = 10_000.0
# Of published models.
_CONTEXT, _CAP, _RESIDUAL, _EPS = 12, 50.0, 0.5, 1e-6
_LINEARS = (
    "feed_forward1.ffw_layer_1", "feed_forward1.ffw_layer_2", "feed_forward2.ffw_layer_1",
    "feed_forward2.ffw_layer_2", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
    "self_attn.post", "lconv1d.linear_start", "lconv1d.linear_end",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SoundTowerConfig:
    """The shape of a tower for sound, as fields of the configuration of a model that has one.

    sound_channels  of the two convolutions
    sound_context   C
    sound_kernel    taps of the depthwise convolution
    sound_cap       bound of the attention's scores
    sound_clips     whether the inputs and outputs of products are clamped to stored bounds
    sound_width     the width of the result
    """

    sound_mels: int
    sound_channels: tuple[int, ...]
    sound_layers: int
    sound_hidden: int
    sound_heads: int
    sound_context: int
    sound_kernel: int
    sound_cap: float
    sound_residual: float
    sound_norm_eps: float
    sound_clips: bool
    sound_width: int

    @property
    def sound(self) -> SoundShape:
        """The sound that the tower reads."""
        return SoundShape(self.sound_mels, FRAMES)

    def require_sound_layers(self) -> None:
        """Raise ConfigError unless the tower has two convolutions, and heads of equal parts."""
        if len(self.sound_channels) != 2 or self.sound_mels % FRAMES:
            raise ConfigError(
                f"subsampling_conv_channels: got {list(self.sound_channels)}, expected two, the "
                f"first a multiple of {FRAMES}"
            )
        if self.sound_layers > MAX_LAYERS:
            raise ConfigError(f"{self.sound_layers} layers, expected at most {MAX_LAYERS}")
        if self.sound_hidden % (2 * self.sound_heads):
            raise ConfigError(
                f"{self.sound_heads} heads cannot share a tower's width of {self.sound_hidden}"
            )


class Halving(nn.Module):
    """A convolution with stride 2 over frames and mels, and a norm of its channels."""

    def __init__(self, inputs: int, outputs: int, eps: float) -> None:
        self.conv = nn.Convolution(
            inputs, outputs, (3, 3), dtype=DType.F32, stride=2, padding=1, bias=False
        )
        self.norm = nn.LayerNorm(outputs, eps, bias=False)

    def __call__(self, x: Tensor, count: Tensor, *, step: int) -> Tensor:
        """(T, mels, inputs) of each `step`-th frame; the first `count` i32 (1,) frames are sound.

        Returns (T / 2, mels / 2, outputs).
        """
        frames = ops.iota(shape=x.shape, axis=0, dtype=DType.I32) * step
        inside = ops.compare(frames, f.trailing(count, x.shape), direction="LT")
        x = ops.select(inside, x, ops.full_like(x, 0.0))
        image = ops.reshape(ops.transpose(x, order=(2, 0, 1)), shape=(1, x.shape[2], *x.shape[:2]))
        y = self.conv(image)
        channels_last = ops.transpose(ops.reshape(y, shape=y.shape[1:]), order=(1, 2, 0))
        return f.relu(self.norm(channels_last))


class Subsampling(nn.Module):
    """Four frames to a position."""

    def __init__(self, config: SoundTowerConfig) -> None:
        first, second = config.sound_channels
        self.layer0 = Halving(1, first, config.sound_norm_eps)
        self.layer1 = Halving(first, second, config.sound_norm_eps)
        self.input_proj_linear = nn.Linear(config.sound_mels // 4 * second, config.sound_hidden)

    def __call__(self, frames: Tensor, count: Tensor) -> Tensor:
        """f32 (T, mels) -> (N, E)."""
        x = self.layer0(f.unsqueeze(frames, axis=2), count, step=1)
        x = self.layer1(x, count, step=2)
        return self.input_proj_linear(ops.reshape(x, shape=(x.shape[0], x.shape[1] * x.shape[2])))


class FeedForward(nn.Module):
    """An MLP; a fraction of its result is added."""

    def __init__(self, config: SoundTowerConfig) -> None:
        hidden, clips = config.sound_hidden, config.sound_clips
        self.residual = config.sound_residual
        self.ffw_layer_1 = ClippedLinear(hidden, 4 * hidden, clips=clips)
        self.ffw_layer_2 = ClippedLinear(4 * hidden, hidden, clips=clips)
        self.pre_layer_norm = nn.RMSNorm(hidden, config.sound_norm_eps)
        self.post_layer_norm = nn.RMSNorm(hidden, config.sound_norm_eps)

    def __call__(self, h: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.ffw_layer_2(f.silu(self.ffw_layer_1(self.pre_layer_norm(h))))
        return h + self.post_layer_norm(x) * self.residual


class Attention(nn.Module):
    """Attention of each position to the C - 1 before it and itself, by distance."""

    def __init__(self, config: SoundTowerConfig) -> None:
        hidden, clips = config.sound_hidden, config.sound_clips
        self.heads, self.context, self.cap = (
            config.sound_heads, config.sound_context, config.sound_cap,
        )  # fmt: skip
        self.width = hidden // self.heads
        self.q_proj = ClippedLinear(hidden, hidden, clips=clips)
        self.k_proj = ClippedLinear(hidden, hidden, clips=clips)
        self.v_proj = ClippedLinear(hidden, hidden, clips=clips)
        self.post = ClippedLinear(hidden, hidden, clips=clips)
        self.relative_k_proj = nn.Linear(hidden, hidden)
        self.per_dim_scale = nn.parameter(self.width, dtype=DType.F32)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        query, key, value = (
            f.split_heads(product(x), self.width)
            for product in (self.q_proj, self.k_proj, self.v_proj)
        )
        scale = self.per_dim_scale * (self.width**-0.5 / math.log(2))
        query = query * f.along_last(scale, query)
        key = key * (math.log(1 + math.e) / math.log(2))
        # (C, H, D), a row for each distance.
        near = f.split_heads(self.relative_k_proj(distances(self.context, x.shape[1])), self.width)
        scores = []
        keys, values = earlier(key, self.context), earlier(value, self.context)
        for distance in range(self.context):
            offset = f.along_axes(
                ops.reshape(f.narrow(near, 0, distance, distance + 1), shape=near.shape[1:]),
                query,
                (0,),
            )
            score = ops.reduce_sum(query * (keys[distance] + offset), axes=(2,))
            score = ops.tanh(score * (1 / self.cap)) * self.cap
            row = ops.iota(shape=score.shape, axis=0, dtype=DType.I32)
            outside = ops.compare(row, ops.full_like(row, distance), direction="LT")
            scores.append(ops.select(outside, ops.full_like(score, -1e9), score))
        weights = f.softmax(ops.concatenate(*(f.unsqueeze(s, axis=2) for s in scores), axis=2))
        mixed = None
        for distance in range(self.context):
            weight = ops.reshape(
                f.narrow(weights, 2, distance, distance + 1), shape=scores[0].shape
            )
            seen = values[distance] * f.along_axes(weight, value, (2,))
            mixed = seen if mixed is None else mixed + seen
        assert mixed is not None, "a position sees itself"
        return self.post(ops.reshape(mixed, shape=x.shape))


class LightConvolution(nn.Module):
    """A gated depthwise convolution of each position and those before it."""

    def __init__(self, config: SoundTowerConfig) -> None:
        hidden, clips = config.sound_hidden, config.sound_clips
        self.taps = config.sound_kernel
        self.linear_start = ClippedLinear(hidden, 2 * hidden, clips=clips)
        self.linear_end = ClippedLinear(hidden, hidden, clips=clips)
        self.depthwise_conv1d = nn.parameter(hidden, 1, self.taps, dtype=DType.F32)
        self.pre_layer_norm = nn.RMSNorm(hidden, config.sound_norm_eps)
        self.conv_norm = nn.RMSNorm(hidden, config.sound_norm_eps)

    def __call__(self, h: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        hidden = h.shape[1]
        x, gate = f.split(self.linear_start(self.pre_layer_norm(h)), (hidden, hidden), axis=1)
        x = x * f.sigmoid(gate)
        mixed, rows = None, earlier(x, self.taps)
        for tap in range(self.taps):
            weight = ops.reshape(f.narrow(self.depthwise_conv1d, 2, tap, tap + 1), shape=(hidden,))
            part = rows[self.taps - 1 - tap] * f.along_last(weight, x)
            mixed = part if mixed is None else mixed + part
        assert mixed is not None, "a convolution has taps"
        return h + self.linear_end(f.silu(self.conv_norm(mixed)))


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: SoundTowerConfig) -> None:
        hidden, eps = config.sound_hidden, config.sound_norm_eps
        self.feed_forward1 = FeedForward(config)
        self.feed_forward2 = FeedForward(config)
        self.self_attn = Attention(config)
        self.lconv1d = LightConvolution(config)
        self.norm_pre_attn = nn.RMSNorm(hidden, eps)
        self.norm_post_attn = nn.RMSNorm(hidden, eps)
        self.norm_out = nn.RMSNorm(hidden, eps)

    def __call__(self, h: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        h = self.feed_forward1(h)
        h = h + self.norm_post_attn(self.self_attn(self.norm_pre_attn(h)))
        # Barriers, since the kernels of the next norms would else keep whole rows on the stack.
        h = ops.barrier(self.lconv1d(ops.barrier(h)))
        return self.norm_out(self.feed_forward2(h))


class Tower(nn.Module):
    """The whole tower."""

    def __init__(self, config: SoundTowerConfig) -> None:
        self.subsample_conv_projection = Subsampling(config)
        self.layers = [Block(config) for _ in range(config.sound_layers)]
        self.output_proj = nn.Linear(config.sound_hidden, config.sound_width, bias=True)

    def __call__(self, frames: Tensor, count: Tensor) -> Tensor:
        """f32 (T, mels) -> (N, width); the first `count` i32 (1,) frames are sound.

        A position sees none behind it, so padding changes no row of the sound.
        """
        h = self.subsample_conv_projection(frames, count)
        for block in self.layers:
            h = block(h)
        return self.output_proj(h)


def earlier(x: Tensor, count: int) -> list[Tensor]:
    """x (N, ...) delayed by 0 to `count` - 1 rows, with zeros before the first row.

    All are slices of one padded tensor.
    """
    rows = x.shape[0]
    zeros = ops.broadcast(
        ops.constant(value=np.float32(0)), shape=(count - 1, *x.shape[1:]), axes=()
    )
    # A barrier, since the compiler finds no order of the kernels that read slices of it.
    padded = ops.barrier(ops.concatenate(zeros, x, axis=0)) if count > 1 else x
    starts = range(count - 1, -1, -1)
    return [f.narrow(padded, 0, start, start + rows) for start in starts]


def distances(count: int, width: int) -> Tensor:
    """Sines and cosines of the distances 0, 1, ...: f32 (count, width)."""
    half = width // 2
    positions = ops.iota(shape=(count,), axis=0, dtype=DType.I32)
    # The last rate is exactly 1 / _MAX_PERIOD; rotary positions end a step before it.
    base = _MAX_PERIOD ** (half / max(half - 1, 1))
    cosine, sine = f.rope_table(positions, width, base=base)
    return ops.concatenate(sine, cosine, axis=1)


def sound_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `SoundTowerConfig`, from the object of config.json; raises ConfigError."""
    data.fixed(model_type="gemma4_audio", hidden_act="silu", attention_context_right=0)
    # Scores are masked with any large number. Positions are read by their distance, not in chunks,
    # and no activation comes near the bound of gradients.
    data.ignore("attention_invalid_logits_value", "attention_chunk_size", "gradient_clipping")
    channels = data.counts("subsampling_conv_channels", default=(128, 32))
    return {
        "sound_mels": channels[0],
        "sound_channels": tuple(channels),
        "sound_layers": data.size("num_hidden_layers", default=12),
        "sound_hidden": data.size("hidden_size", default=1024),
        "sound_heads": data.size("num_attention_heads", default=8),
        # transformers' mask leaves the last position of `attention_context_left` out.
        "sound_context": data.size("attention_context_left", default=_CONTEXT + 1) - 1,
        "sound_kernel": data.size("conv_kernel_size", default=5),
        "sound_cap": data.number("attention_logit_cap", default=_CAP),
        "sound_residual": data.number("residual_weight", default=_RESIDUAL),
        "sound_norm_eps": data.number("rms_norm_eps", default=_EPS),
        "sound_clips": data.flag("use_clipped_linears", default=True),
        "sound_width": data.size("output_proj_dims", default=1536),
    }


def gguf_sound_fields(data: GgufMetadata, keys: ProjectorMetadata) -> dict[str, Any]:
    """The fields of `SoundTowerConfig`, from the tensors and keys of a projector.

    What a file does not say is fixed in llama.cpp too, the epsilon among it, since converters wrote
    another one. Raises ConfigError.
    """
    keys.ignore(
        "audio.attention.layer_norm_epsilon", "audio.feed_forward_length", "audio.num_mel_bins"
    )  # fmt: skip
    channels = tuple(data.rows(f"a.conv1d.{i}.weight") for i in range(2))
    return {
        "sound_mels": data.rows("a.input_projection.weight", axis=1) // channels[1] * FRAMES,
        "sound_channels": channels,
        "sound_layers": keys.size("audio.block_count"),
        "sound_hidden": keys.size("audio.embedding_length"),
        "sound_heads": keys.size("audio.attention.head_count"),
        "sound_context": _CONTEXT,
        "sound_kernel": data.rows("a.blk.0.conv_dw.weight", axis=1),
        "sound_cap": _CAP,
        "sound_residual": _RESIDUAL,
        "sound_norm_eps": _EPS,
        "sound_clips": data.has_tensor("a.blk.0.attn_q.input_min"),
        "sound_width": data.rows("a.pre_encode.out.weight"),
    }


def sound_names(*prefixes: str) -> TensorNames:
    """The names of a tower's tensors, in folders after one of the prefixes."""
    return TensorNames(
        gguf={
            "subsample_conv_projection.layer0.conv": "conv1d.0",
            "subsample_conv_projection.layer0.norm": "conv1d.0.norm",
            "subsample_conv_projection.layer1.conv": "conv1d.1",
            "subsample_conv_projection.layer1.norm": "conv1d.1.norm",
            "subsample_conv_projection.input_proj_linear": "input_projection",
            "feed_forward1.pre_layer_norm": "ffn_norm",
            "feed_forward1.ffw_layer_1": "ffn_up",
            "feed_forward1.ffw_layer_2": "ffn_down",
            "feed_forward1.post_layer_norm": "ffn_post_norm",
            "feed_forward2.pre_layer_norm": "ffn_norm_1",
            "feed_forward2.ffw_layer_1": "ffn_up_1",
            "feed_forward2.ffw_layer_2": "ffn_down_1",
            "feed_forward2.post_layer_norm": "ffn_post_norm_1",
            "norm_pre_attn": "attn_pre_norm",
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.post": "attn_out",
            "self_attn.relative_k_proj": "attn_k_rel",
            "self_attn.per_dim_scale": "per_dim_scale.weight",
            "norm_post_attn": "attn_post_norm",
            # The converter has the names of these two norms the other way round.
            "lconv1d.pre_layer_norm": "conv_norm",
            "lconv1d.conv_norm": "norm_conv",
            "lconv1d.linear_start": "conv_pw1",
            "lconv1d.depthwise_conv1d": "conv_dw.weight",
            "lconv1d.linear_end": "conv_pw2",
            "norm_out": "ln2",
            "output_proj": "pre_encode.out",
        },
        gguf_prefix="a.",
        folder={
            **{f"{name}.weight": f"{name}.linear.weight" for name in _LINEARS},
            "lconv1d.depthwise_conv1d": "lconv1d.depthwise_conv1d.weight",
        },
        softplus=("self_attn.per_dim_scale",),
        prefixes=prefixes,
    )
