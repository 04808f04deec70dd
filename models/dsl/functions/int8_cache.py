"""KV caches of int8, with a scale for each head of each row.

`R` are rows of a ring, `G` key/value heads, `D` the width of a head, `N` new rows. A cache is two
tensors: integers i8 (R, G * D), and scales f32 (R, G). A value is its integer times its scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.attention import attend_ring, split_heads
from hearthd.models.dsl.functions.shapes import along_axes, narrow
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["int8_cache_attention", "write_int8_rows", "write_row_scales"]

# The smallest largest magnitude of a head: 127 divided by it is finite. The largest: an infinity
# counts as this, and NaN as zero, so that no row poisons the attention of later tokens.
_TINY, _HUGE = 2.0**-100, 2.0**100


def bounded_values(x: Tensor) -> Tensor:
    """x with 0 in place of NaN, limited to +-_HUGE, so that scales are finite."""
    is_number = ops.compare(x, x, direction="EQ")
    number = ops.select(is_number, x, ops.full_like(x, 0.0))
    return ops.minimum(ops.maximum(number, ops.full_like(x, -_HUGE)), ops.full_like(x, _HUGE))


def _largest(x: Tensor) -> Tensor:
    """The largest magnitude of each head of (N, G, D): (N, G)."""
    largest = ops.reduce_max(ops.absolute(x), axes=(2,))
    return ops.maximum(largest, ops.full_like(largest, _TINY))


@composite()
def write_int8_rows(cache: Tensor, places: Tensor, x: Tensor) -> Tensor:
    """Integers i8 (R, G * D) with the heads x (N, G, D), rounded, at rows `places`, i32 (N,).

    The largest magnitude of a head becomes 127. NaN becomes 0.
    """
    bounded = bounded_values(x)
    rounded = ops.round_(bounded * along_axes(127.0 / _largest(bounded), x, (2,)))
    rows = ops.reshape(ops.convert(rounded, dtype=DType.I8), shape=(x.shape[0], cache.shape[1]))
    return ops.scatter(cache, places, rows, combine="replace")


@composite()
def write_row_scales(cache: Tensor, places: Tensor, x: Tensor) -> Tensor:
    """Write the scales of heads x (N, G, D) to rows `places`, i32 (N,), of scales f32 (R, G)."""
    return ops.scatter(cache, places, _largest(bounded_values(x)) * (1 / 127), combine="replace")


@composite(no_gradient="its keys and values are integers")
def int8_cache_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_scale: Tensor,
    value_scale: Tensor,
    start: Tensor,
    sinks: Tensor | None = None,
    *,
    keys: int,
    window: int | None = None,
    scale: float,
    cap: float | None = None,
    alone: bool = False,
) -> Tensor:
    """`cached_attention` over caches of int8.

    key        i8 (R, G * D), value likewise
    key_scale  f32 (R, G), value_scale likewise

    The other arguments as in `cached_attention`.
    """

    def read(integers: Tensor, scales: Tensor, rows: int) -> Tensor:
        heads = split_heads(narrow(integers, 0, 0, rows), query.shape[2])
        wide = ops.convert(heads, dtype=query.dtype)
        scales = narrow(scales, 0, 0, rows)
        scales = scales if scales.dtype is query.dtype else ops.convert(scales, dtype=query.dtype)
        return wide * along_axes(scales, wide, (2,))

    return attend_ring(
        query,
        lambda rows: (read(key, key_scale, rows), read(value, value_scale, rows)),
        start,
        sinks,
        rows=key.shape[0],
        keys=keys,
        window=window,
        scale=scale,
        cap=cap,
        alone=alone,
    )
