"""Mamba-2 (Dao and Gu, 2024, "Transformers are SSMs"), as models combine it with attention.

In shape comments `N` is sequences x tokens, `E` the hidden width, `C` the channels of the
convolution, `H` heads, `P` the width of a head, `G` groups of heads, `K` the width of a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.kv_cache import StateRows
from hearthd.models.decoder.recurrent.shared_layers import (
    Bias,
    CausalConv,
    GroupedNorm,
    Rates,
    Skip,
)
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache, Span
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Mamba2Config(DecoderConfig):
    """The shape of a decoder with Mamba-2 in some layers.

    ssm_heads   H
    ssm_width   P
    ssm_groups  G
    ssm_state   K
    taps        inputs that a convolution sums, the token's own included
    """

    ssm_heads: int
    ssm_width: int
    ssm_groups: int
    ssm_state: int
    taps: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ssm_heads % self.ssm_groups:
            raise ConfigError(
                f"mamba_n_heads: got {self.ssm_heads}, expected a multiple of the "
                f"{self.ssm_groups} groups"
            )
        if self.taps < 2:
            raise ConfigError(f"mamba_d_conv: got {self.taps}, expected at least 2")

    @property
    def ssm_inner(self) -> int:
        """H * P."""
        return self.ssm_heads * self.ssm_width

    @property
    def channels(self) -> int:
        """C."""
        return self.ssm_inner + 2 * self.ssm_groups * self.ssm_state

    @property
    def states(self) -> tuple[StateRows, StateRows]:
        """The states of a layer: of its heads, (H, K, P), and the convolution's last inputs."""
        inner = self.ssm_inner
        return StateRows(self.ssm_state * inner, inner), StateRows((self.taps - 1) * self.channels)


def gguf_fields(data: GgufMetadata) -> dict[str, Any]:
    """The fields that `Mamba2Config` adds to `DecoderConfig`, from GGUF; raises ConfigError."""
    heads, inner = data.size("ssm.time_step_rank"), data.size("ssm.inner_size")
    if inner % heads:
        raise ConfigError(f"ssm.inner_size: got {inner}, expected a multiple of {heads} heads")
    return {
        "ssm_heads": heads,
        "ssm_width": inner // heads,
        "ssm_groups": data.size("ssm.group_count"),
        "ssm_state": data.size("ssm.state_size"),
        "taps": data.size("ssm.conv_kernel"),
    }


class Mamba2(nn.Module):
    """A short convolution, then a state of each head that decays by the inputs: `f.ssm_scan`."""

    def __init__(self, config: Mamba2Config, *, norm: bool = True) -> None:
        """`norm` says whether the gated outputs are normalized."""
        self.config = config
        inner, heads = config.ssm_inner, config.ssm_heads
        self.in_proj = nn.Linear(config.hidden, inner + config.channels + heads)
        self.conv1d = CausalConv(config.channels, config.taps, bias=True)
        self.rates, self.dt, self.skip = Rates(heads), Bias(heads), Skip(heads)
        self.gated_norm = GroupedNorm(inner, config.ssm_groups, config.norm_eps) if norm else None
        self.out_proj = nn.Linear(inner, config.hidden)

    def __call__(self, x: Tensor, _: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        config = self.config
        parts = [config.ssm_inner, config.channels, config.ssm_heads]
        rows = f.split(self.inputs(x), parts, axis=1)
        return self.out_proj(cache.recur(rows, config.states, self._read))

    def inputs(self, x: Tensor) -> Tensor:
        """(N, E) -> gates (N, H * P), the convolution's inputs (N, C), time steps (N, H)."""
        return self.in_proj(x)

    def _read(
        self, rows: Sequence[Tensor], buffers: tuple[Tensor, ...], span: Span
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The gated outputs (n, H * P) for n tokens of a sequence, and its buffers after them."""
        config, (gate, inputs, steps), (memory, latest) = self.config, rows, buffers
        mixed, latest = self.conv1d(inputs, latest, span)
        keys = config.ssm_groups * config.ssm_state
        x, key, query = f.split(mixed, [config.ssm_inner, keys, keys], axis=1)
        memory = f.ssm_scan(
            memory, span.positions, query, key, x, steps, gate,
            self.dt.bias, self.rates.weight, self.skip.weight,
            groups=config.ssm_groups, ring=span.ring, every=span.every,
        )  # fmt: skip
        y = f.recurrence_outputs(memory, x, ring=span.ring)
        return y if self.gated_norm is None else self.gated_norm(y), (memory, latest)


def tensor_names(module: str, folder: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The names in GGUF files, and in folders, of the parts of a layer's Mamba-2.

    module  its name in the model
    folder  its name in folders
    """
    parts = {"in_proj": "ssm_in", "conv1d": "ssm_conv1d", "dt": "ssm_dt", "out_proj": "ssm_out"}
    gguf = {f"{module}.{ours}": theirs for ours, theirs in parts.items()}
    gguf |= {
        f"{module}.gated_norm": "ssm_norm",
        f"{module}.rates.weight": "ssm_a",
        f"{module}.skip.weight": "ssm_d",
    }
    return gguf, {
        **{f"{module}.{part}": f"{folder}.{part}" for part in ("in_proj", "conv1d", "out_proj")},
        f"{module}.gated_norm": f"{folder}.norm",
        f"{module}.dt.bias": f"{folder}.dt_bias",
        f"{module}.rates.weight": f"{folder}.A_log",
        f"{module}.skip.weight": f"{folder}.D",
    }
