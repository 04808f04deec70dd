"""Attention of each token to every row of keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.fused.cache_attention import (
    LANES,
    PREFILL_TOKENS,
    WORKGROUPS,
    attention_kernel,
    cached_attention,
    limit_caches,
    limit_heads,
)
from hearthd.models.dsl.ops.record import Kernel, Sample, Scratch, require
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Attrs, Types
    from hearthd.models.dsl.types import TensorType

__all__ = ["full_attention"]

# As full_attention.c has them with tiles: keys of a block, queries of a set, floats of a workgroup,
# and columns of a tile.
_BLOCK, _SET, _MAX_FLOATS, _TILE_COLUMNS = 128, 32, 17 << 10, 32


def _full_attention(
    query: Tensor, key: Tensor, value: Tensor, last: Tensor, *, scale: float, counted: bool
) -> Tensor:
    return f.full_attention(query, key, value, last + 1 if counted else None, scale=scale)


def _full_limits(types: Types, attrs: Attrs) -> None:
    if types[0].shape[0] < PREFILL_TOKENS:
        require(not attrs["counted"], f"rows that are counted, for {PREFILL_TOKENS} tokens or more")
        cached_attention.limits(types, attrs)
        return
    query, key, value, last = types
    require(last.dtype is DType.I32, "a last row i32")
    limit_caches(query, key, value)
    limit_heads(query, key, LANES)


def _full_kernel(types: Types, _: TensorType, attrs: Attrs) -> Kernel:
    """Of a ring of R rows, tokens from position R - 1 on see R positions: each row once."""
    query, key, _, last = types
    (tokens, heads, width), (rows, columns) = query.shape, key.shape
    suffix = "" if key.dtype is query.dtype else f"_{key.dtype.label}"
    if tokens < PREFILL_TOKENS:
        return attention_kernel(
            query, key, last, {**attrs, "keys": rows + tokens, "window": rows}, suffix
        )
    groups, blocks = columns // width, -(-rows // _BLOCK)
    floats = -(-width // _TILE_COLUMNS) * _TILE_COLUMNS + width  # of a query and its mixed values
    queries = _MAX_FLOATS // (floats * _SET) * _SET
    while queries > _SET and heads * -(-tokens // queries) < WORKGROUPS:
        queries -= _SET
    split_rows = Kernel(
        function=f"split_rows{suffix}", sizes=(groups, width, rows), workgroups=blocks
    )
    return Kernel(
        function=f"full_attention{suffix}",
        sizes=(tokens, heads, groups, width, rows, queries),
        workgroups=heads * -(-tokens // queries),
        scalars=(attrs["scale"],),
        scratch=Scratch(kernel=split_rows, size=groups * blocks * _BLOCK * floats),
    )


def _full_sample(
    rng: np.random.Generator, tokens: int, rows: int, count: int | None = None, heads: int = 2
) -> Sample:
    cache = (normal(rng, rows, 64), normal(rng, rows, 64))
    inputs = (normal(rng, tokens, heads, 64), *cache, np.array([(count or rows) - 1], np.int32))
    return Sample(inputs, {"scale": 0.2, "counted": count is not None})


full_attention: Fused = Fused(
    name="full_attention",
    doc="`f.full_attention`: softmax(scale * q k^T) v over all R rows, or if `counted` over the "
    "first ones. The last input is the index of the last row.",
    reference=_full_attention,
    limits=_full_limits,
    kernel=_full_kernel,
    rows_apart=True,
    heads_apart=True,
    samples=lambda rng: [
        _full_sample(rng, 1, 7),
        _full_sample(rng, 3, 5),
        _full_sample(rng, PREFILL_TOKENS, 16, 11, heads=1),
    ],
)
