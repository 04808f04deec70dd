"""Gated delta nets (Yang et al., 2024): each head has a matrix as its state.

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
from hearthd.models.decoder.recurrent.shared_layers import Bias, CausalConv, Rates
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache, Span
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


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
        """The states of a layer: the memory, and the last inputs of the convolution."""
        inner = self.value_heads * self.value_width
        return StateRows(self.key_width * inner, inner), StateRows((self.taps - 1) * self.channels)


def delta_net_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields that `DeltaNetConfig` adds to `DecoderConfig`, except `attends`."""
    value_heads, key_heads = data.size("ssm.time_step_rank"), data.size("ssm.group_count")
    return {
        "key_heads": key_heads,
        "value_heads": value_heads,
        "key_width": data.size("ssm.state_size"),
        "value_width": data.size("ssm.inner_size") // value_heads,
        "taps": data.size("ssm.conv_kernel"),
        "takes_turns": value_heads != key_heads,
    }


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
        rows = self.in_proj_qkv(x), self.in_proj_b(x), self.in_proj_a(x), self.in_proj_z(x)
        return self.out_proj(cache.recur(rows, self.config.states, self._read))

    def _read(
        self, rows: Sequence[Tensor], buffers: tuple[Tensor, ...], span: Span
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The gated outputs (n, H * V) for n tokens of a sequence, and its buffers after them."""
        (qkv, b, a, z), (memory, inputs) = rows, buffers
        mixed, inputs = self.conv1d(qkv, inputs, span)
        config = self.config
        keys = config.key_heads * config.key_width
        query, key, value = f.split(mixed, [keys, keys, mixed.shape[1] - 2 * keys], axis=1)
        memory = f.gated_delta_rule(
            memory, span.positions, query, key, value, a, b, self.dt.bias, self.rates.weight,
            groups=config.key_heads, takes_turns=config.takes_turns,
            ring=span.ring, every=span.every,
        )  # fmt: skip
        y = f.recurrence_outputs(memory, value, ring=span.ring)
        heads, gate = (f.split_heads(part, config.value_width) for part in (y, z))
        return f.flatten(f.silu(gate) * self.output_rms(heads), first=1), (memory, inputs)
