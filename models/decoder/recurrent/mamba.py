"""Mamba (Gu and Dao, 2023, "Mamba"), whose states decay by channel.

In shape comments `N` is sequences x tokens, `E` the hidden width, `I` the channels, `K` the width
of a channel's state, `R` the rank of the time steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.kv_cache import StateRows
from hearthd.models.decoder.recurrent.shared_layers import Bias, CausalConv, Skip
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache, Span
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class MambaConfig(DecoderConfig):
    """The shape of a decoder with Mamba in some layers.

    ssm_inner  I
    ssm_state  K
    step_rank  R
    taps       inputs that a convolution sums, the token's own included
    """

    ssm_inner: int
    ssm_state: int
    step_rank: int
    taps: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps < 2:
            raise ConfigError(f"conv_kernel: got {self.taps}, expected at least 2")

    @property
    def states(self) -> tuple[StateRows, StateRows]:
        """The states of a layer: of its channels, (K, I), and the convolution's last inputs."""
        inner = self.ssm_inner
        return StateRows(self.ssm_state * inner, inner), StateRows((self.taps - 1) * inner)


def gguf_fields(data: GgufMetadata) -> dict[str, Any]:
    """The fields that `MambaConfig` adds to `DecoderConfig`, from GGUF; raises ConfigError."""
    return {
        "ssm_inner": data.size("ssm.inner_size"),
        "ssm_state": data.size("ssm.state_size"),
        "step_rank": data.size("ssm.time_step_rank"),
        "taps": data.size("ssm.conv_kernel"),
    }


class ChannelRates(nn.Module):
    """How fast each number of a channel's state fades: numbers (K, I) below 0."""

    def __init__(self, keys: int, channels: int) -> None:
        self.weight = nn.parameter(keys, channels, dtype=DType.F32)


class Mamba(nn.Module):
    """A short convolution, then a state of each channel that decays by it: `f.selective_scan`."""

    def __init__(self, config: MambaConfig) -> None:
        self.config = config
        inner, rank = config.ssm_inner, config.step_rank
        self.in_proj = nn.Linear(config.hidden, 2 * inner)
        self.conv1d = CausalConv(inner, config.taps, bias=True)
        self.x_proj = nn.Linear(inner, rank + 2 * config.ssm_state)
        self.dt_proj = nn.Linear(rank, inner)
        self.rates = ChannelRates(config.ssm_state, inner)
        self.dt, self.skip = Bias(inner), Skip(inner)
        self.out_proj = nn.Linear(inner, config.hidden)

    def __call__(self, x: Tensor, _: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        config = self.config
        x, gate = f.split(self.in_proj(x), [config.ssm_inner] * 2, axis=1)
        mixed = cache.recur((x,), config.states, self._convolve)
        widths = [config.step_rank, config.ssm_state, config.ssm_state]
        steps, key, query = self.normed(*f.split(self.x_proj(mixed), widths, axis=1))
        rows = query, key, mixed, self.dt_proj(steps), gate
        return self.out_proj(cache.recur(rows, config.states, self._read))

    def normed(self, steps: Tensor, key: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Time steps (N, R), keys and queries (N, K) as the recurrence reads them."""
        return steps, key, query

    def _convolve(
        self, rows: Sequence[Tensor], buffers: tuple[Tensor, ...], span: Span
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The convolution's results (n, I) for n tokens of a sequence, and its buffers."""
        (x,), (memory, latest) = rows, buffers
        mixed, latest = self.conv1d(x, latest, span)
        return mixed, (memory, latest)

    def _read(
        self, rows: Sequence[Tensor], buffers: tuple[Tensor, ...], span: Span
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The gated outputs (n, I) for n tokens of a sequence, and its buffers after them."""
        (query, key, x, steps, gate), (memory, latest) = rows, buffers
        memory = f.selective_scan(
            memory, span.positions, query, key, x, steps, gate,
            self.dt.bias, self.rates.weight, self.skip.weight, ring=span.ring, every=span.every,
        )  # fmt: skip
        return f.recurrence_outputs(memory, x, ring=span.ring), (memory, latest)


def tensor_names(module: str, folder: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The names in GGUF files, and in folders, of the parts of a layer's Mamba.

    module  its name in the model
    folder  its name in folders
    """
    parts = {"in_proj": "in", "conv1d": "conv1d", "x_proj": "x", "dt_proj": "dt", "out_proj": "out"}
    gguf = {f"{module}.{ours}": f"ssm_{theirs}" for ours, theirs in parts.items()}
    gguf |= {
        f"{module}.dt": "ssm_dt",
        f"{module}.rates.weight": "ssm_a",
        f"{module}.skip.weight": "ssm_d",
    }
    return gguf, {
        **{f"{module}.{part}": f"{folder}.{part}" for part in parts},
        f"{module}.dt.bias": f"{folder}.dt_proj.bias",
        f"{module}.rates.weight": f"{folder}.A_log",
        f"{module}.skip.weight": f"{folder}.D",
    }
