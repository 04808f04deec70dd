"""Layers that read the keys and values of an earlier layer (Brandon et al., 2024).

The first layers of a model have keys and values, and caches of them. Each of the others reads those
of the last one of them that is of its kind: with a window, or without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.layers import HeadLinear, rotated
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class SharedCacheConfig(DecoderConfig):
    """The shape of a model; `caching_layers` of its layers have keys and values of their own."""

    caching_layers: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = self._have_windows
        if self.caching_layers > self.layers or set(kinds) != set(kinds[: self.caching_layers]):
            raise ConfigError(
                f"num_kv_shared_layers: expected a layer of each kind among those with keys and "
                f"values, got {self.caching_layers} of {self.layers} layers with them, and "
                f"windows {self.windows!r:.200}"
            )

    @property
    @override
    def cached_layers(self) -> int:
        """The number of layers with caches, the first ones; later layers read these caches."""
        return self.caching_layers

    def shares(self, layer: int) -> bool:
        """Whether a layer reads the keys and values of another one."""
        return layer >= self.caching_layers

    def source(self, layer: int) -> int:
        """The layer whose keys and values a layer reads."""
        kinds = self._have_windows
        same = (i for i in range(self.caching_layers) if kinds[i] == kinds[layer])
        return max(same) if self.shares(layer) else layer

    @property
    def _have_windows(self) -> list[bool]:
        return [window is not None for window in self.windows or (None,) * self.layers]


class SharedAttention(nn.Module):
    """Attention with normalized queries over the keys and values of another layer."""

    def __init__(self, config: DecoderConfig, *, scale: float) -> None:
        self.scale = scale
        self.q_proj = HeadLinear(config.hidden, config.heads, config.head_dim)
        self.q_norm = nn.RMSNorm(config.head_dim, config.norm_eps)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden)

    def __call__(self, x: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E); `cache` is the other layer's, which has been called."""
        query = rotated(self.q_norm(self.q_proj(x)), rope)
        return self.o_proj(cache.attend_shared(query, scale=self.scale))
