"""Attention with linear biases in place of positions (ALiBi; Press et al., 2022).

A head adds its slope times the distance of a key to scores. A softmax takes away what all scores of
a query share, so slope times the key's position does the same. It is a part of the product of query
and key: keys have their position in further columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from hearthd.models.alibi import alibi_slopes
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.layers import Attention, DecoderModel
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

# Columns that are added to heads: kernels compute 16, or in steps of 64.
_COLUMNS, _STEP = 16, 64
# A position is a multiple of _HIGH and a rest: f16 has both exactly, up to _HIGH * 2048 positions.
_HIGH = 64


def padded_width(width: int) -> int:
    """The columns of a head with its position."""
    return width + _COLUMNS + -(width + _COLUMNS) % _STEP


@dataclass(frozen=True, kw_only=True)
class BiasedConfig(DecoderConfig):
    """The shape of a decoder; `largest_bias` is the exponent of the last head's slope."""

    largest_bias: float = 8.0


class BiasedAttention(Attention):
    """Attention with linear biases."""

    def __init__(self, config: BiasedConfig) -> None:
        super().__init__(config)
        self.slopes = alibi_slopes(config.heads, config.largest_bias)
        self.more = padded_width(config.head_dim) - config.head_dim

    @override
    def __call__(self, x: Tensor, _: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        query, key, value = self.heads(x)
        width = query.shape[2]
        position = ops.convert(cache.positions(x.shape[0]), dtype=DType.F32)
        high = ops.floor(position * (1 / _HIGH))
        of_key = (
            ops.broadcast(part, shape=(*key.shape[:2], 1), axes=(0,))
            for part in (high, position - high * _HIGH)
        )
        numbers = np.zeros((query.shape[1], self.more), np.float32)
        numbers[:, 0] = self.slopes * (_HIGH / self.scale)
        numbers[:, 1] = self.slopes / self.scale
        columns = (*query.shape[:2], self.more)
        of_query = ops.broadcast(ops.constant(value=numbers), shape=columns, axes=(1, 2))
        mixed = cache.attend(
            ops.concatenate(query, of_query, axis=2),
            ops.concatenate(key, *of_key, _zeros(key, self.more - 2), axis=2),
            ops.concatenate(value, _zeros(value, self.more), axis=2),
            scale=self.scale,
        )
        heads = f.narrow(f.split_heads(mixed, width + self.more), 2, 0, width)
        return self.output(f.flatten(heads, first=1))


def _zeros(heads: Tensor, columns: int) -> Tensor:
    """Columns of zeros behind heads (N, H, D)."""
    return ops.full(shape=(*heads.shape[:2], columns), dtype=DType.F32, value=0.0)


class BiasedModel(DecoderModel):
    """A model with such attention."""

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        """None for each layer."""
        return [None] * self.config.layers

    @override
    def cache_width(self, _: int) -> int:
        return self.config.kv_heads * padded_width(self.config.head_dim)

    @override
    def cache_heads(self, _: int) -> int:
        """0: a scale for a head would round its other columns by its position."""
        return 0
