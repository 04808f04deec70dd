"""The layers of RWKV-7: a memory of keys and values, and an MLP; both also read the token before.

In shape comments `N` is sequences x tokens, `E` the hidden width, `H` heads, `K` the width of a
head, `T` new tokens of a sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.kv_cache import StateRows
from hearthd.models.decoder.recurrent.shared_layers import LowRank
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.kv_cache import LayerCache, Span
    from hearthd.models.dsl.graph import Tensor

_FASTEST = -math.exp(-0.5)  # the logarithm of the fastest decay
_EPS = 1e-24  # added to the sum of the squares of a key
_MEMORY, _BEFORE_MIXER, _BEFORE_MLP = range(3)  # the states of a layer


@dataclass(frozen=True, kw_only=True)
class Rwkv7Config(DecoderConfig):
    """The shape of a model; its heads have keys and values of the same width.

    decay_rank  columns between the matrices that give the decay of each column of keys
    rate_rank   the same for how much of a key's old value is removed
    value_rank  the same for the share of the first layer's value
    gate_rank   the same for the gate
    """

    decay_rank: int
    rate_rank: int
    value_rank: int
    gate_rank: int

    @property
    def inner(self) -> int:
        """The width of all heads."""
        return self.heads * self.head_dim

    @property
    def states(self) -> tuple[StateRows, ...]:
        """The memory, and the last input of the mixer and of the MLP."""
        memory = StateRows(self.head_dim * self.inner, self.inner)
        return memory, StateRows(self.hidden), StateRows(self.hidden)


class Vector(nn.Module):
    """Numbers, one for each column."""

    def __init__(self, width: int) -> None:
        self.weight = nn.parameter(width, dtype=DType.F32)

    def times(self, x: Tensor) -> Tensor:
        """(N, width) -> (N, width)."""
        return x * f.along_last(self.weight, x)


def change_to_earlier(x: Tensor, cache: LayerCache, config: Rwkv7Config, index: int) -> Tensor:
    """For each row of x (N, E), the input of the token before it, minus the row.

    State `index` of the layer keeps the last input. The first token has zeros before it.
    """

    def step(
        rows: Sequence[Tensor], buffers: tuple[Tensor, ...], span: Span
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        new, states = rows[0], list(buffers)
        before = span.before(states[index])
        states[index] = f.latest_inputs(
            states[index], span.positions, before, new, every=span.every
        )
        earlier = f.narrow(ops.concatenate(before, new, axis=0), 0, 0, new.shape[0])
        return earlier, tuple(states)

    return cache.recur((x,), config.states, step) - x


class TimeMixer(nn.Module):
    """A memory whose columns of keys fade at rates of their own, and that each token corrects."""

    def __init__(self, config: Rwkv7Config, *, is_first: bool) -> None:
        self.config, hidden, inner = config, config.hidden, config.inner
        self.r_mix, self.w_mix, self.k_mix, self.v_mix, self.a_mix, self.g_mix = (
            Vector(hidden) for _ in range(6)
        )
        self.r_proj, self.k_proj, self.v_proj = (nn.Linear(hidden, inner) for _ in range(3))
        self.decay = LowRank(hidden, config.decay_rank, inner, ops.tanh, bias=True)
        self.rate = LowRank(hidden, config.rate_rank, inner, bias=True)
        self.first_share = (
            None if is_first else LowRank(hidden, config.value_rank, inner, bias=True)
        )
        self.gate = LowRank(hidden, config.gate_rank, inner, f.sigmoid)
        self.probe_scale, self.key_rate, self.bonus = (Vector(inner) for _ in range(3))
        eps = config.head_dim * config.norm_eps
        self.output_norm = nn.GroupNorm(config.heads, inner, eps, dtype=DType.F32)
        self.o_proj = nn.Linear(inner, hidden)

    def __call__(self, x: Tensor, first: Tensor | None, cache: LayerCache) -> tuple[Tensor, Tensor]:
        """(N, E) -> (N, E), and the values (N, H K) of the first layer, which is `first`."""
        change = change_to_earlier(x, cache, self.config, _BEFORE_MIXER)
        receptance = self.r_proj(x + self.r_mix.times(change))
        for_value = x + self.v_mix.times(change)
        value = self.v_proj(for_value)
        if first is None or self.first_share is None:
            first = value
        else:
            value = value + (first - value) * f.sigmoid(self.first_share(for_value))
        key = self.k_proj(x + self.k_mix.times(change))
        rate = f.sigmoid(self.rate(x + self.a_mix.times(change)))
        log_decay = f.sigmoid(self.decay(x + self.w_mix.times(change))) * _FASTEST
        probe = self._of_length_1(self.probe_scale.times(key))
        key = key + self.key_rate.times(key) * (rate + -1.0)
        # The rule finds a key's old value after the decay, RWKV-7 before.
        probe, removed = probe * ops.exponential(log_decay * -1.0), probe * rate * -1.0
        rows = receptance, log_decay, key, value, probe, removed
        y = self.output_norm(cache.recur(rows, self.config.states, self._read))
        y = y + self._own_share(receptance * key, value)
        return self.o_proj(y * self.gate(x + self.g_mix.times(change))), first

    def _read(
        self, rows: Sequence[Tensor], buffers: tuple[Tensor, ...], span: Span
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The outputs (T, H K) for the new tokens of a sequence, and its buffers after them."""
        receptance, log_decay, key, value, probe, removed = rows
        memory = f.channel_delta_rule(
            buffers[_MEMORY], span.positions, receptance, key, value, log_decay, probe, removed,
            heads=self.config.heads, ring=span.ring, every=span.every,
        )  # fmt: skip
        y = f.recurrence_outputs(memory, value, ring=span.ring)
        return y, (memory, *buffers[_BEFORE_MIXER:])

    def _of_length_1(self, x: Tensor) -> Tensor:
        """Heads x (N, H K) of the length 1."""
        width = self.config.head_dim
        scale = ops.full(shape=x.shape[1:], value=width**-0.5, dtype=x.dtype)
        return f.grouped_rms_norm(x, scale, groups=self.config.heads, eps=_EPS / width)

    def _own_share(self, products: Tensor, value: Tensor) -> Tensor:
        """What each head adds of a token's own value (N, H K), by receptance times key."""
        width = self.config.head_dim
        sums = ops.reduce_sum(f.split_heads(self.bonus.times(products), width), axes=(2,))
        values = f.split_heads(value, width)
        return f.flatten(values * ops.broadcast(sums, shape=values.shape, axes=(0, 1)), first=1)


class ChannelMixer(nn.Module):
    """An MLP without a gate."""

    def __init__(self, config: Rwkv7Config) -> None:
        self.config = config
        self.mix = Vector(config.hidden)
        self.up_proj = nn.Linear(config.hidden, config.ffn)
        self.down_proj = nn.Linear(config.ffn, config.hidden)

    def __call__(self, x: Tensor, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        x = x + self.mix.times(change_to_earlier(x, cache, self.config, _BEFORE_MLP))
        return self.down_proj(f.squared_relu(self.up_proj(x)))
