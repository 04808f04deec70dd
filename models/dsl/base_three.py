"""Digits in base 3, five in a byte: a plane of 1.625 bits for each integer.

A group of sixteen rows (models/dsl/matrix_format.py) has 104 bytes. A quad has 64 integers. Those
at place i of quads 5 to 7 are a number of three digits, 0 to 26, which has five bits.

    64 bytes  byte i: the digits at place i of quads 0 to 4
    32 bytes  byte i: the lower four bits of number i, and above them those bits of number i + 32
    8 bytes   bit i / 8 of byte i % 8: the fifth bit of number i

A byte x of five digits is the fraction x / 256, as in TQ1_0 of ggml (ggml-quants.c): the whole part
of 3 * x / 256 is the first digit, and the rest has the next ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.matrix_format import DIGIT_BYTES, QUAD_BYTES
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor

_FIVE, _THREE = 5, 3
_LOW, _HIGH = 32, 8


def packed_digits(quads: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Quads (..., 8, 64) of digits as i8 (..., 1, 104)."""
    fractions = -(-_number(quads[..., :_FIVE, :]) * 256 // 3**_FIVE)
    numbers = _number(quads[..., _FIVE:, :])
    low = numbers[..., :_LOW] & 15 | (numbers[..., _LOW:] & 15) << 4
    fifth = (numbers >> 4).reshape(*numbers.shape[:-1], 8, _HIGH)
    high = np.packbits(fifth.astype(np.uint8), axis=-2, bitorder="little")[..., 0, :]
    packed = np.concatenate([fractions, low, high], axis=-1).astype(np.uint8)
    return packed.view(np.int8)[..., np.newaxis, :]


def _number(quads: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Quads (..., n, 64) as numbers of n digits (..., 64), the first one the highest."""
    powers = 3 ** np.arange(quads.shape[-2])[::-1, np.newaxis]
    return np.asarray((quads * powers).sum(axis=-2))


def unpacked_digits(packed: Tensor) -> Tensor:
    """The quads i32 (N / 16, K / 32, 8, 64) of packed digits i8 (N / 16, K / 32, 1, 104)."""
    wide = ops.convert(packed, dtype=DType.I32)
    stored = ops.bitwise_and(wide, ops.full_like(wide, 255))
    low = f.narrow(stored, 3, QUAD_BYTES, QUAD_BYTES + _LOW)
    high = f.narrow(stored, 3, QUAD_BYTES + _LOW, DIGIT_BYTES)
    lower = ops.concatenate(_bits(low, 0, 15), _bits(low, 4, 15), axis=3)
    fifth = ops.concatenate(*(_bits(high, i, 1) for i in range(8)), axis=3)
    numbers = lower + fifth * 16
    # The smallest x with x / 256 of at least number / 27.
    fractions = numbers * 9 + _bits(numbers + 1, 1, 31)
    digits = [*_digits(f.narrow(stored, 3, 0, QUAD_BYTES), _FIVE), *_digits(fractions, _THREE)]
    return ops.concatenate(*digits, axis=2)


def _digits(fractions: Tensor, count: int) -> list[Tensor]:
    """The first `count` digits of fractions x / 256, each i32 of the shape of x."""
    digits = []
    for _ in range(count):
        times = fractions * 3
        digits.append(_bits(times, 8, 3))
        fractions = _bits(times, 0, 255)
    return digits


def _bits(x: Tensor, start: int, mask: int) -> Tensor:
    moved = ops.shift_right(x, ops.full_like(x, start)) if start else x
    return ops.bitwise_and(moved, ops.full_like(x, mask))
