"""Layers that keep a state of a sequence, whatever its length, in place of a row of each position.

In shape comments `N` is sequences x tokens, `E` the hidden width, `C` the channels of the
convolution, `J` key heads, `H` value heads, `K` the width of a key, `V` of a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.kv_cache import StateRows
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache, Span
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_EPS = 1e-6  # added to the squares of a key or a query


@dataclass(frozen=True, kw_only=True)
class DeltaNetConfig(DecoderConfig):
    """The shape of a decoder with gated delta nets in some layers.

    attends      whether each layer has attention
    key_heads    J
    value_heads  H
    key_width    K
    value_width  V
    taps         inputs that a convolution sums, the token's own included
    takes_turns  whether value head i reads key head i mod J, as llama.cpp orders them, in place of
                 i / (H / J)
    """

    by_layer = (*DecoderConfig.by_layer, "attends")

    attends: tuple[bool, ...]
    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    taps: int
    takes_turns: bool = False

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_heads % self.key_heads:
            raise ConfigError(
                f"linear_num_value_heads: got {self.value_heads}, expected a multiple of the "
                f"{self.key_heads} key heads"
            )
        if self.taps < 2:
            raise ConfigError(f"linear_conv_kernel_dim: got {self.taps}, expected at least 2")

    @property
    def channels(self) -> int:
        """C."""
        return 2 * self.key_heads * self.key_width + self.value_heads * self.value_width

    @property
    def states(self) -> tuple[StateRows, StateRows]:
        """What a layer keeps: the memory, and the last inputs of the convolution."""
        inner = self.value_heads * self.value_width
        return StateRows(self.key_width * inner, inner), StateRows((self.taps - 1) * self.channels)


def delta_net_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `DeltaNetConfig` besides those of `DecoderConfig`, and `attends`."""
    value_heads, key_heads = data.size("ssm.time_step_rank"), data.size("ssm.group_count")
    return {
        "key_heads": key_heads,
        "value_heads": value_heads,
        "key_width": data.size("ssm.state_size"),
        "value_width": data.size("ssm.inner_size") // value_heads,
        "taps": data.size("ssm.conv_kernel"),
        "takes_turns": value_heads != key_heads,
    }


class CausalConv(nn.Module):
    """A convolution of each channel over the latest inputs, (C, taps), then SiLU."""

    def __init__(self, channels: int, taps: int, *, bias: bool = False) -> None:
        self.weight = nn.parameter(channels, taps, dtype=DType.F32)
        self.bias = nn.parameter(channels, dtype=DType.F32) if bias else None

    def __call__(self, x: Tensor, states: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        """Inputs (n, C) -> SiLU of the sums (n, C), and the ring of the latest inputs."""
        before = span.before(states)
        mixed = f.causal_conv(before, x, self.weight, self.bias)
        return mixed, f.latest_inputs(states, span.positions, before, x, every=span.every)


class Rates(nn.Module):
    """How fast the memory of each head fades: numbers (H,) below 0."""

    def __init__(self, heads: int) -> None:
        self.weight = nn.parameter(heads, dtype=DType.F32)


class Bias(nn.Module):
    """Numbers (H,) that are added to those of each head."""

    def __init__(self, heads: int) -> None:
        self.bias = nn.parameter(heads, dtype=DType.F32)


class GatedDeltaNet(nn.Module):
    """A memory of keys and values that fades, read by queries (Yang et al., 2024)."""

    def __init__(self, config: DeltaNetConfig) -> None:
        self.config = config
        inner, heads = config.value_heads * config.value_width, config.value_heads
        self.in_proj_qkv = nn.Linear(config.hidden, config.channels)
        self.in_proj_z = nn.Linear(config.hidden, inner)
        self.in_proj_b = nn.Linear(config.hidden, heads)
        self.in_proj_a = nn.Linear(config.hidden, heads)
        self.conv1d = CausalConv(config.channels, config.taps)
        self.rates, self.dt = Rates(heads), Bias(heads)
        self.output_rms = nn.RMSNorm(config.value_width, config.norm_eps)
        self.out_proj = nn.Linear(inner, config.hidden)

    def __call__(self, x: Tensor, _: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        rows = self.in_proj_qkv(x), self.in_proj_b(x), self.in_proj_a(x)
        heads = self.output_rms(cache.recur(rows, self.config.states, self._read))
        gate = f.split_heads(self.in_proj_z(x), self.config.value_width)
        return self.out_proj(f.flatten(f.silu(gate) * heads, first=1))

    def _read(
        self, rows: Sequence[Tensor], buffers: tuple[Tensor, ...], span: Span
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The outputs (n, H, V) for n tokens of a sequence, and its buffers after them."""
        (qkv, b, a), (memory, inputs) = rows, buffers
        mixed, inputs = self.conv1d(qkv, inputs, span)
        query, key, value = self._heads(mixed)
        log_decay = f.softplus(a + f.along_last(self.dt.bias, a))
        log_decay = log_decay * f.along_last(self.rates.weight, a)
        rate = f.sigmoid(b)
        if span.real is not None:
            real = f.along_axes(span.real, rate, (1,))
            log_decay, rate = log_decay * real, rate * real
        memory = f.gated_delta_rule(
            memory, span.positions, query, key, value, log_decay, rate,
            ring=span.ring, every=span.every,
        )  # fmt: skip
        return f.learned(memory, value, ring=span.ring), (memory, inputs)

    def _heads(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n, C) -> queries and keys (n, H, K) of a length of K^-0.5 and of 1, values (n, H, V)."""
        config = self.config
        keys = config.key_heads * config.key_width
        query, key, value = f.split(mixed, [keys, keys, mixed.shape[1] - 2 * keys], axis=1)
        width = config.key_width
        return (
            self._repeated(_of_length(f.split_heads(query, width), width**-0.5)),
            self._repeated(_of_length(f.split_heads(key, width), 1.0)),
            f.split_heads(value, config.value_width),
        )

    def _repeated(self, heads: Tensor) -> Tensor:
        """Key heads (n, J, K), each for the value heads that read it: (n, H, K)."""
        tokens, count, width = heads.shape
        times = self.config.value_heads // count
        shape, axes = (tokens, count, times, width), (0, 1, 3)
        if self.config.takes_turns:
            shape, axes = (tokens, times, count, width), (0, 2, 3)
        repeated = ops.broadcast(heads, shape=shape, axes=axes)
        return ops.reshape(repeated, shape=(tokens, self.config.value_heads, width))


def _of_length(x: Tensor, length: float) -> Tensor:
    """x (n, J, K) / sqrt(sum(x^2) + 1e-6) * length."""
    width = x.shape[2]
    weight = ops.full(shape=(width,), dtype=x.dtype, value=length * width**-0.5)
    return f.rms_norm(x, weight, eps=_EPS / width)
