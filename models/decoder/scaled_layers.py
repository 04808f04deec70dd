"""Layers whose inputs and results are multiplied by numbers of the configuration.

In shape comments `N` is sequences x tokens, `E` the hidden width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.layers import MLP, Attention
from hearthd.models.decoder.recurrent.mamba2 import Mamba2
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.decoder_config import DecoderConfig
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.decoder.recurrent.mamba2 import Mamba2Config
    from hearthd.models.dsl.graph import Tensor


def scaled(x: Tensor, scale: float) -> Tensor:
    """A tensor times a number; for 1, the tensor itself."""
    return x if scale == 1.0 else x * scale


class ScaledAttention(Attention):
    """Attention; `scales` multiply its inputs and its results."""

    def __init__(
        self, config: DecoderConfig, *, key_scale: float, scales: tuple[float, ...]
    ) -> None:
        super().__init__(config)
        self.key_scale, self.scales = key_scale, scales

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = super().heads(scaled(x, self.scales[0]))
        return query, scaled(key, self.key_scale), value

    @override
    def __call__(self, x: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        return scaled(super().__call__(x, rope, cache), self.scales[1])


class ScaledMamba(Mamba2):
    """Mamba-2; `input_scales` multiply the gates, x, B, C and the time steps."""

    def __init__(
        self,
        config: Mamba2Config,
        *,
        norm: bool,
        input_scales: Sequence[float],
        scales: tuple[float, ...],
    ) -> None:
        super().__init__(config, norm=norm)
        self.input_scales, self.scales = input_scales, scales

    @override
    def inputs(self, x: Tensor) -> Tensor:
        config, y = self.config, super().inputs(scaled(x, self.scales[0]))
        if {*self.input_scales} == {1.0}:
            return y
        keys = config.ssm_groups * config.ssm_state
        widths = [config.ssm_inner, config.ssm_inner, keys, keys, config.ssm_heads]
        parts = zip(f.split(y, widths, axis=1), self.input_scales, strict=True)
        return ops.concatenate(*(part * scale for part, scale in parts), axis=1)

    @override
    def __call__(self, x: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        return scaled(super().__call__(x, rope, cache), self.scales[1])


class ScaledMLP(MLP):
    """An MLP; `scales` multiply its gates and its results."""

    def __init__(self, config: DecoderConfig, *, scales: tuple[float, ...]) -> None:
        super().__init__(config)
        self.scales = scales

    @override
    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        gate = f.silu(scaled(self.gate_proj(x), self.scales[0]))
        return scaled(self.down_proj(gate * self.up_proj(x)), self.scales[1])
