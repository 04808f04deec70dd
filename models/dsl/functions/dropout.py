"""Dropout, whose random numbers are a hash of a seed and of each element's place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.ops.record import require
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["dropout"]

_BITS = 24
# Odd numbers as i32: 2^32 over the golden ratio, and two from MurmurHash3's last step.
_GOLDEN, _FIRST, _SECOND = -0x61C88647, -0x7A143595, -0x3D4D51CB


def dropout(x: Tensor, seed: Tensor, *, rate: float, stream: int) -> Tensor:
    """x with the fraction `rate` of its elements replaced by 0, and the rest divided by 1 - rate.

    seed    i32 (): another seed chooses other elements
    stream  a number: with one seed, another stream chooses other elements

    Raises TypeRuleError for a rate that is not in 0 <= rate < 1, or another type of seed.
    """
    require(0 <= rate < 1, f"a rate of at least 0 and below 1, got {rate}")
    require(seed.type == TensorType((), DType.I32), "a seed i32 ()")
    size = math.prod(x.shape)
    offset = (stream * _GOLDEN + 2**31) % 2**32 - 2**31
    start = _hashed(seed + offset)
    places = ops.iota(shape=(size,), axis=0, dtype=DType.I32) * _GOLDEN
    numbers = _hashed(places + ops.broadcast(start, shape=(size,), axes=()))
    highest = ops.shift_right(numbers, ops.full_like(numbers, 32 - _BITS))
    kept = ops.compare(highest, ops.full_like(highest, round(rate * 2**_BITS)), direction="GE")
    kept = ops.reshape(kept, shape=x.shape)
    return ops.select(kept, x * (1 / (1 - rate)), ops.full_like(x, 0.0))


def _hashed(x: Tensor) -> Tensor:
    """The last step of MurmurHash3, by Austin Appleby: every bit of x changes half of the bits."""
    x = _shifted_xor(x, 16) * _FIRST
    x = _shifted_xor(x, 13) * _SECOND
    return _shifted_xor(x, 16)


def _shifted_xor(x: Tensor, places: int) -> Tensor:
    """The exclusive or of x and of x moved down."""
    moved = ops.shift_right(x, ops.full_like(x, places))
    return ops.bitwise_or(x, moved) - ops.bitwise_and(x, moved)
