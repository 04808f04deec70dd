"""MLPs and experts whose gate and values are limited, as Step 3.5 Flash has them.

In shape comments `N` is sequences x tokens, `E` the hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from hearthd.models.decoder.experts import Experts, ExpertsConfig, MixtureOfExperts
from hearthd.models.decoder.layers import MLP
from hearthd.models.dsl import functions as f

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class LimitedConfig(ExpertsConfig):
    """The shape of a decoder with experts, some of them with limits.

    expert_limits  for each layer, `limit` of its experts: see `f.limited_swiglu`
    mlp_limits     the same of its MLP, or of the MLP beside its experts
    """

    limits: ClassVar[tuple[str, ...]] = ("expert_limits", "mlp_limits")
    by_layer = (*ExpertsConfig.by_layer, *limits)

    expert_limits: tuple[float | None, ...] = ()
    mlp_limits: tuple[float | None, ...] = ()


class LimitedMLP(MLP):
    """An MLP whose gate and values are limited."""

    def __init__(self, config: ExpertsConfig, limit: float | None) -> None:
        super().__init__(config)
        self.limit = limit

    @override
    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(f.limited_swiglu(gate, up, limit=self.limit))


class LimitedExperts(Experts):
    """Experts; each is such an MLP."""

    def __init__(self, config: ExpertsConfig, limit: float | None) -> None:
        super().__init__(config)
        self.limit = limit

    @override
    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        return f.limited_swiglu(gate, up, limit=self.limit)


def limited_feed_forward(config: LimitedConfig, layer: int) -> Callable[[Tensor], Tensor]:
    """The experts of a layer, or its MLP."""
    limit = config.mlp_limits[layer]
    if not config.routed[layer]:
        return LimitedMLP(config, limit)
    shared = LimitedMLP(replace(config, ffn=config.shared_ffn or 0), limit)
    return MixtureOfExperts(config, LimitedExperts(config, config.expert_limits[layer]), shared)


def limits_by_layer(by_layer: list[float], layers: int) -> tuple[float | None, ...]:
    """A limit for each layer; files have 0 for none, and may go on with further layers."""
    return tuple(limit or None for limit in by_layer[:layers]) or (None,) * layers
