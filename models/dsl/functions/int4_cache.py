"""KV caches of 4 bits. Keys and values are rotated by a Hadamard matrix before they are rounded.

A few columns of keys are much larger than the others, and would take the steps of their group. The
rotation spreads them over their group (Ashkboos et al., 2024, "QuaRot"). A query that is
rotated alike has the same products with the keys; what attention mixes of the values is rotated
back.

Scores need more exact keys than mixed values need values: keys have 6 bits, values 4.

`R` are rows of a ring, `G` key/value heads, `D` the width of a head, a multiple of 32, `N` new
rows. A cache of values of B bits is two tensors: bytes i8 (R, G * D * B / 8), and scales f16
(R, G * D / 32). A value is an integer from -2^(B-1) to 2^(B-1) - 1 times the scale of its group of
32 columns. The bytes of a group hold u, the integer plus 2^(B-1): byte i of 16 has the lower four
bits of column i in its lower half, and the lower four bits of column 16 + i, less 8, in its upper
half, in two's complement. Four bytes follow for each further bit: bit i belongs to column i.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.activations import clamp
from hearthd.models.dsl.functions.attention import attend_ring
from hearthd.models.dsl.functions.int8_cache import bounded_values
from hearthd.models.dsl.functions.shapes import along_axes, chunk, narrow, split, trailing
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = [
    "CACHE_GROUP",
    "KEY_BITS",
    "VALUE_BITS",
    "int4_cache_attention",
    "packs_heads",
    "rotate_heads",
    "write_packed_rows",
    "write_packed_scales",
]

KEY_BITS, VALUE_BITS = 6, 4
# Columns that are rotated together, and have a scale of their own.
CACHE_GROUP = 32
_HALF = CACHE_GROUP // 2
_LARGEST_SCALE = float(np.finfo(np.float16).max)


def packs_heads(width: int) -> bool:
    """Whether a cache of 4 bits can have heads of a width; kernels take at most 512."""
    return width % CACHE_GROUP == 0 and width <= 512


@composite()
def rotate_heads(x: Tensor) -> Tensor:
    """Heads (N, H, D) with each group of 32 columns times a Hadamard matrix divided by sqrt(32).

    The matrix is Sylvester's. To rotate twice is to rotate back. Larger groups of columns, up to
    the whole head, were rounded less exactly: outliers then cost several scales.
    """
    matrix = np.ones((1, 1))
    while len(matrix) < CACHE_GROUP:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    factors = ops.constant(value=(matrix / math.sqrt(CACHE_GROUP)).astype(x.dtype.numpy))
    rows = ops.reshape(x, shape=(x.type.size // CACHE_GROUP, CACHE_GROUP))
    rotated = ops.dot_general(rows, factors, batch=((), ()), contract=((1,), (0,)), dtype=x.dtype)
    return ops.reshape(rotated, shape=x.shape)


def _groups(x: Tensor) -> Tensor:
    """Heads (N, G, D), rotated, as groups (N, G * D / 32, 32)."""
    rows, heads, width = x.shape
    rotated = rotate_heads(bounded_values(x))
    return ops.reshape(rotated, shape=(rows, heads * width // CACHE_GROUP, CACHE_GROUP))


def _scales(groups: Tensor, bits: int) -> Tensor:
    """The scales f16 (N, K) of groups (N, K, 32): the largest magnitude becomes -2^(bits - 1)."""
    largest, least = ops.reduce_max(groups, axes=(2,)), -ops.reduce_max(-groups, axes=(2,))
    is_positive = ops.compare(largest, -least, direction="GE")
    scales = ops.select(is_positive, largest, least) * -(2.0 ** (1 - bits))
    return ops.convert(clamp(scales, -_LARGEST_SCALE, _LARGEST_SCALE), dtype=DType.F16)


@composite(no_gradient="its values are integers")
def write_packed_rows(cache: Tensor, places: Tensor, x: Tensor, *, bits: int) -> Tensor:
    """Bytes i8 (R, G * D * bits / 8) with the heads x (N, G, D) at rows `places`, i32 (N,).

    The heads are rotated, and then rounded. NaN counts as 0, and infinities as large numbers.
    """
    groups = _groups(x)
    scales = ops.convert(_scales(groups, bits), dtype=x.dtype)
    is_zero = ops.compare(scales, ops.full_like(scales, 0.0), direction="EQ")
    divisors = ops.select(is_zero, ops.full_like(scales, 1.0), scales)
    factors = ops.select(is_zero, scales, 1.0 / divisors)
    half = 2.0 ** (bits - 1)
    integers = clamp(ops.round_(groups * along_axes(factors, groups, (2,))), -half, half - 1)
    packed = _packed(integers + half, bits)
    rows = ops.reshape(packed, shape=(x.shape[0], cache.shape[1]))
    return ops.scatter(cache, places, rows, combine="replace")


def _packed(integers: Tensor, bits: int) -> Tensor:
    """The bytes i8 (N, K, 4 * bits) of integers from 0 on (N, K, 32)."""
    upper = ops.floor(integers * (1 / 16))
    nibbles = integers - upper * 16.0
    first, second = chunk(nibbles, 2, axis=2)
    halves = ops.convert((second + -8.0) * 16.0 + first, dtype=DType.I8)
    rows, groups, _ = integers.shape
    planes = []
    for _ in range(bits - 4):
        above = ops.floor(upper * 0.5)
        by_byte = ops.reshape(upper - above * 2.0, shape=(rows, groups, CACHE_GROUP // 8, 8))
        weights = np.array([*2.0 ** np.arange(7), -128.0]).astype(integers.dtype.numpy)
        weighted = by_byte * trailing(ops.constant(value=weights), by_byte.shape)
        planes.append(ops.convert(ops.reduce_sum(weighted, axes=(3,)), dtype=DType.I8))
        upper = above
    return ops.concatenate(halves, *planes, axis=2) if planes else halves


def _integers(packed: Tensor, groups: int, dtype: DType) -> Tensor:
    """The integers, from -2^(bits - 1) on, of rows (N, K * 4 * bits): (N, K, 32) of a dtype."""
    rows, size = packed.shape[0], packed.shape[1] // groups
    wide = ops.convert(ops.reshape(packed, shape=(rows, groups, size)), dtype=dtype)
    halves = narrow(wide, 2, 0, _HALF)
    second = ops.floor(halves * (1 / 16))
    nibbles = ops.concatenate(halves - second * 16.0, second + 8.0, axis=2)
    shape = (rows, groups, CACHE_GROUP // 8, 8)
    steps = trailing(ops.constant(value=(0.5 ** np.arange(8)).astype(dtype.numpy)), shape)
    weight = 16.0
    for plane in split(wide, [_HALF, *[4] * ((size - _HALF) // 4)], axis=2)[1:]:
        shifted = ops.floor(ops.broadcast(plane, shape=shape, axes=(0, 1, 2)) * steps)
        bits = ops.reshape(shifted - ops.floor(shifted * 0.5) * 2.0, shape=nibbles.shape)
        nibbles, weight = nibbles + bits * weight, 2 * weight
    return nibbles + -weight / 2


@composite(no_gradient="its values are rounded")
def write_packed_scales(cache: Tensor, places: Tensor, x: Tensor, *, bits: int) -> Tensor:
    """Write the scales of x (N, G, D) to rows `places`, i32 (N,), of scales f16 (R, G * D / 32)."""
    return ops.scatter(cache, places, _scales(_groups(x), bits), combine="replace")


@composite(no_gradient="its keys and values are integers")
def int4_cache_attention(
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
    """`cached_attention` over a cache of keys of 6 bits and values of 4.

    query      (T, H, D), as `rotate_heads` gives it
    key        i8 (R, G * D * 6 / 8), value i8 (R, G * D / 2)
    key_scale  f16 (R, G * D / 32), value_scale likewise

    The other arguments as in `cached_attention`. The result is rotated back.
    """
    width = query.shape[2]

    def read(packed: Tensor, scales: Tensor, rows: int) -> Tensor:
        groups = scales.shape[1]
        integers = _integers(narrow(packed, 0, 0, rows), groups, query.dtype)
        wide = ops.convert(narrow(scales, 0, 0, rows), dtype=query.dtype)
        values = integers * along_axes(wide, integers, (2,))
        return ops.reshape(values, shape=(rows, groups * CACHE_GROUP // width, width))

    mixed = attend_ring(
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
    return rotate_heads(mixed)
