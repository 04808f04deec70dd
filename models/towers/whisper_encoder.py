"""Whisper's encoder: the tower of Whisper, Voxtral, Ultravox and Qwen2-Audio.

Source: "Robust Speech Recognition via Large-Scale Weak Supervision" (Radford et al., 2022), and the
model `whisper` of transformers. `T` is frames of a spectrogram, `S` hidden states: one for each two
frames. `E` is the hidden width, `H` heads, `D` the width of a head.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

_TAPS = 3  # rows that a convolution reads at a time
_LONGEST = 1e4  # wavelength of a position, over 2 pi


class EncoderShape(NamedTuple):
    """The shape of an encoder.

    mels    bands of a spectrogram
    states  of the longest sound, for which positions are learned
    """

    mels: int
    states: int
    layers: int
    hidden: int
    ffn: int
    heads: int
    norm_eps: float


class EncoderAttention(nn.Module):
    """Attention to the layer's hidden states."""

    def __init__(self, hidden: int, heads: int) -> None:
        width = hidden // heads
        self.scale = width**-0.5
        self.q_proj = HeadLinear(hidden, heads, width, bias=True)
        self.k_proj = HeadLinear(hidden, heads, width)
        self.v_proj = HeadLinear(hidden, heads, width, bias=True)
        self.out_proj = nn.Linear(hidden, hidden, bias=True)

    def everywhere(self, x: Tensor, count: Tensor | None = None) -> Tensor:
        """Attention of each state to every state, or to the first `count` i32 (1,).

        (S, E) -> (S, E).
        """
        key, value = (
            ops.reshape(project(x), shape=x.shape) for project in (self.k_proj, self.v_proj)
        )
        mixed = f.full_attention(self.q_proj(x), key, value, count, scale=self.scale)
        return self.out_proj(ops.reshape(mixed, shape=x.shape))


class EncoderMLP(nn.Module):
    """The base of layers: two products with a norm before them."""

    def __init__(self, hidden: int, ffn: int, eps: float) -> None:
        self.fc1 = nn.Linear(hidden, ffn, bias=True)
        self.fc2 = nn.Linear(ffn, hidden, bias=True)
        self.final_layer_norm = nn.LayerNorm(hidden, eps)

    def mlp(self, h: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return h + self.fc2(f.gelu(self.fc1(self.final_layer_norm(h))))


class EncoderBlock(EncoderMLP):
    """A layer."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__(shape.hidden, shape.ffn, shape.norm_eps)
        self.self_attn = EncoderAttention(shape.hidden, shape.heads)
        self.self_attn_layer_norm = nn.LayerNorm(shape.hidden, shape.norm_eps)

    def __call__(self, h: Tensor, count: Tensor | None = None) -> Tensor:
        """(S, E) -> (S, E); for `count` see `EncoderAttention.everywhere`."""
        return self.mlp(h + self.self_attn.everywhere(self.self_attn_layer_norm(h), count))


class Encoder(nn.Module):
    """Two convolutions and blocks: a spectrogram to hidden states."""

    learns_positions = True

    def __init__(self, shape: EncoderShape) -> None:
        hidden = shape.hidden
        self.conv1 = nn.Linear(shape.mels * _TAPS, hidden, bias=True)
        self.conv2 = nn.Linear(hidden * _TAPS, hidden, bias=True)
        if self.learns_positions:
            self.embed_positions = nn.Embedding(shape.states, hidden)
        self.layers = [EncoderBlock(shape) for _ in range(shape.layers)]
        self.layer_norm = nn.LayerNorm(hidden, shape.norm_eps)

    def __call__(self, spectrogram: Tensor) -> Tensor:
        """f32 (mels, 2 S) -> (S, E)."""
        frames = ops.transpose(spectrogram, order=(1, 0))
        return self.layer_norm(self.blocks(self.stem(frames)))

    def stem(self, frames: Tensor, count: Tensor | None = None) -> Tensor:
        """f32 (T, mels) -> (T / 2, E), without positions.

        The first `count` i32 (1,) frames are sound. The second convolution reads zeros for the
        others.
        """
        x = f.gelu(self.conv1(neighbors(frames, stride=1)))
        x = x if count is None else zeros_from(x, count)
        return f.gelu(self.conv2(neighbors(x, stride=2)))

    def blocks(self, h: Tensor, count: Tensor | None = None) -> Tensor:
        """(S, E) -> (S, E), before the last norm; a state sees the first `count` i32 (1,)."""
        h = h + self.positions(h.shape[0])
        for block in self.layers:
            h = block(h, count)
        return h

    def positions(self, states: int) -> Tensor:
        """What is added to the first states (S, E)."""
        table = self.embed_positions.weight
        extent = table.shape[0]
        if states > extent:  # the last row of a sound may have fewer states than others
            table = ops.pad(table, padding=((0, states - extent, 0), (0, 0, 0)), value=0.0)
        return f.narrow(table, 0, 0, states)


def sinusoids(states: int, width: int) -> Tensor:
    """Positions f32 (S, E): sines of rising wavelengths, and their cosines.

    Source: "Attention Is All You Need" (Vaswani et al., 2017).
    """
    half = width // 2
    position, column = (
        ops.iota(shape=(states, half), axis=axis, dtype=DType.F32) for axis in (0, 1)
    )
    angles = position * ops.exponential(column * (-math.log(_LONGEST) / (half - 1)))
    return ops.concatenate(ops.sine(angles), ops.cosine(angles), axis=1)


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


def zeros_from(x: Tensor, count: Tensor) -> Tensor:
    """x (N, C) with zeros in place of the rows after the first `count` i32 (1,)."""
    row = ops.iota(shape=x.shape, axis=0, dtype=DType.I32)
    inside = ops.compare(row, f.trailing(count, x.shape), direction="LT")
    return ops.select(inside, x, ops.full_like(x, 0.0))
