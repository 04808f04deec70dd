"""Delta nets whose memory fades column by column, as Kimi Linear has them.

In shape comments `N` is sequences x tokens, `E` the hidden width, `H` heads, `K` the width of keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.kv_cache import StateRows
from hearthd.models.decoder.recurrent.shared_layers import Bias, LowRank, Rates
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.models.decoder.kv_cache import LayerCache, Span
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

    Projection: TypeAlias = Callable[[Tensor], Tensor]

_EPS = 1e-6  # added to the sum of the squares of a key or a query


@dataclass(frozen=True, kw_only=True)
class ChannelDeltaConfig(DecoderConfig):
    """The shape of a decoder with such delta nets in some layers.

    attends       whether each layer has attention
    delta_heads   H
    delta_width   K, which is also the width of a value
    taps          inputs that a convolution sums, the token's own included
    """

    by_layer = (*DecoderConfig.by_layer, "attends")

    attends: tuple[bool, ...]
    delta_heads: int
    delta_width: int
    taps: int

    @property
    def states(self) -> tuple[StateRows, StateRows]:
        """The states of a layer: the memory, and the last inputs of the convolutions."""
        inner = self.delta_heads * self.delta_width
        return StateRows(self.delta_width * inner, inner), StateRows((self.taps - 1) * 3 * inner)


class Taps(nn.Module):
    """What a convolution multiplies the latest inputs of each channel with."""

    def __init__(self, channels: int, taps: int) -> None:
        self.weight = nn.parameter(channels, taps, dtype=DType.F32)


class KimiDeltaAttention(nn.Module):
    """A memory of keys and values, each of whose columns of keys fades at a rate of its own."""

    def __init__(self, config: ChannelDeltaConfig) -> None:
        self.config, hidden, width = config, config.hidden, config.delta_width
        inner = config.delta_heads * width
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(hidden, inner) for _ in range(3))
        self.q_conv1d, self.k_conv1d, self.v_conv1d = (Taps(inner, config.taps) for _ in range(3))
        self.fading, self.gate = self.projections(hidden, width, inner)
        self.b_proj = nn.Linear(hidden, config.delta_heads)
        self.rates, self.dt = Rates(config.delta_heads), Bias(inner)
        self.o_norm = nn.RMSNorm(width, config.norm_eps)
        self.o_proj = nn.Linear(inner, hidden)

    def projections(self, hidden: int, width: int, inner: int) -> tuple[Projection, Projection]:
        """What gives how much each column of keys fades, and the gates of values."""
        return LowRank(hidden, width, inner), LowRank(hidden, width, inner)

    def fades(self, fading: Tensor, rates: Tensor) -> Tensor:
        """The logarithms of what remains of each column of keys: all three are (n, H K)."""
        return f.softplus(fading) * rates

    def __call__(self, x: Tensor, _: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        qkv = ops.concatenate(self.q_proj(x), self.k_proj(x), self.v_proj(x), axis=1)
        rows = qkv, self.fading(x), self.b_proj(x), self.gate(x)
        return self.o_proj(cache.recur(rows, self.config.states, self._read))

    def _read(
        self, rows: Sequence[Tensor], buffers: tuple[Tensor, ...], span: Span
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The gated outputs (n, H V) for n tokens of a sequence, and its buffers after them."""
        (qkv, fading, b, gate), (memory, inputs) = rows, buffers
        before, width = span.before(inputs), self.config.delta_width
        parts = self.q_conv1d, self.k_conv1d, self.v_conv1d
        taps = ops.concatenate(*(part.weight for part in parts), axis=0)
        mixed = f.causal_conv(before, qkv, taps, None)
        inputs = f.latest_inputs(inputs, span.positions, before, qkv, every=span.every)
        query, key, value = f.split(mixed, [mixed.shape[1] // 3] * 3, axis=1)
        query, key = self._of_length(query, width**-0.5), self._of_length(key, 1.0)
        rates = self._of_columns(f.along_last(self.rates.weight, b))
        fades = self.fades(fading + f.along_last(self.dt.bias, fading), rates)
        learned = key * self._of_columns(f.sigmoid(b))
        memory = f.channel_delta_rule(
            memory, span.positions, query, learned, value, fades, key, learned * -1.0,
            heads=self.config.delta_heads, ring=span.ring, every=span.every,
        )  # fmt: skip
        y = f.recurrence_outputs(memory, value, ring=span.ring)
        heads = self.o_norm(f.split_heads(y, width))
        gated = f.gated_heads(f.split_heads(gate, width), heads)
        return f.flatten(gated, first=1), (memory, inputs)

    def _of_length(self, x: Tensor, length: float) -> Tensor:
        """Heads x (n, H K) of this length."""
        width = self.config.delta_width
        scale = ops.full(shape=x.shape[1:], value=length * width**-0.5, dtype=x.dtype)
        return f.grouped_rms_norm(x, scale, groups=self.config.delta_heads, eps=_EPS / width)

    def _of_columns(self, x: Tensor) -> Tensor:
        """Numbers of heads (n, H), for each column of their keys: (n, H K)."""
        shape = (*x.shape, self.config.delta_width)
        return f.flatten(ops.broadcast(x, shape=shape, axes=(0, 1)), first=1)
