"""Matrices of integers in groups of 32 columns, as the kernels read them.

A matrix (N, K) is stored in the order in which a product reads it, so nothing is laid out again
when a bundle is loaded: sixteen rows at a time, a group of columns at a time, and in a group its
eight quads of columns, each of all sixteen rows.

    weight  i8  (N / 16, K / 32, 8, 64)
    scale   f16 (N / 16, K / 32, 16): the real weight is weight * scale

A matrix can also be stored in halves: the upper and the lower four bits of its integers apart,
those of quad i and quad i + 4 in one byte. A product with the upper halves alone reads half as much
and is approximate: each integer counts as the middle of those that have its upper half.

    upper   i8  (N / 16, K / 32, 4, 64)
    lower   i8  (N / 16, K / 32, 4, 64)

Integers of 4, 5, 6 or 12 bits (`SmallForm`) have four of their bits apart: the lowest four, of 6
bits the upper four. They are unsigned, except those of 12 bits:

    low      i8  (N / 16, K / 32, 4, 64): four bits of quad i, and four of quad i + 4
             i8  (N / 16, K / 32, 2, 64): for 6 bits, the lowest two of each of four quads
    high     i8  (N / 16, K / 32, 1, 64): for 5 bits, the fifth bit of each of the eight quads
             i8  (N / 16, K / 32, 4, 64): for 6 bits, four bits of quad i, and four of quad i + 4
             i8  (N / 16, K / 32, 8, 64): for 12 bits, the upper eight, signed
    scale    f16 (N / 16, K / 32, 16), or (N / 16, K / 16, 16) with a scale for 16 columns
    minimum  f16 (N / 16, K / 32, 16), if there is one:
             the real weight is integer * scale + minimum, otherwise (integer - zero) * scale

The scale of 12 bits is that of the upper eight: the real weight is (integer - zero) / 16 * scale.
As zero is 8, the upper eight alone are the nearest int8 to it. Of 6 bits the upper four alone count
as the middle of the integers that have them.

`ROWS`, `GROUP` and `QUAD` also stand in kernels/grouped.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl.types import TypeRuleError

if TYPE_CHECKING:
    from numpy.typing import NDArray


ROWS = 16
GROUP = 32
QUAD = 4
QUADS = GROUP // QUAD
LANES = ROWS * QUAD
# Stands for both lower halves of a byte, 8 and 8, where they are not read: an i8.
MIDDLE = -0x78
# Stands for four times the lowest two bits of 6, 2 each, where they are not read: an i8.
MIDDLES_OF_TWO = -0x56
# What stands for 0 in the lowest four bits of 12.
MIDDLE_OF_FOUR = 8


def weight_shape(rows: int, columns: int) -> tuple[int, ...]:
    """The shape of a matrix's stored integers; raises TypeRuleError for odd sizes."""
    if rows % ROWS or columns % GROUP:
        raise TypeRuleError(
            f"a matrix in groups has a multiple of {ROWS} rows and of {GROUP} columns, "
            f"this one is {rows} x {columns}"
        )
    return (rows // ROWS, columns // GROUP, QUADS, LANES)


def half_shape(rows: int, columns: int) -> tuple[int, ...]:
    """The shape of either half of them; raises TypeRuleError for odd sizes."""
    blocks, groups, quads, lanes = weight_shape(rows, columns)
    return (blocks, groups, quads // 2, lanes)


def matrix_shape(weight: tuple[int, ...], *, halved: bool = False) -> tuple[int, int]:
    """(N, K) of a weight's shape, or of a half's; raises TypeRuleError for another."""
    inner = (QUADS // 2 if halved else QUADS, LANES)
    if len(weight) != 4 or weight[2:] != inner:
        raise TypeRuleError(
            f"expected (N / {ROWS}, K / {GROUP}, {inner[0]}, {inner[1]}), got {weight}"
        )
    return weight[0] * ROWS, weight[1] * GROUP


def pack(
    integers: NDArray[np.int8], scales: NDArray[np.float16]
) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Integers (N, K) and scales (N, K / 32) in their stored order."""
    shape = weight_shape(*integers.shape)
    blocks, groups = shape[:2]
    quads = integers.reshape(blocks, ROWS, groups, QUADS, QUAD)
    scale = scales.reshape(blocks, ROWS, groups).transpose(0, 2, 1)
    return quads.transpose(0, 2, 3, 1, 4).reshape(shape), np.ascontiguousarray(scale)


def split(weight: NDArray[np.int8]) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """The upper and the lower halves of stored integers."""
    first, second = np.split(weight.view(np.uint8), 2, axis=2)
    upper, lower = first >> 4 | second & 0xF0, first & 0x0F | second << 4
    return upper.view(np.int8), lower.view(np.int8)


@dataclass(frozen=True, kw_only=True)
class SmallForm:
    """A form of matrices of integers that have four of their bits apart.

    bits     of an integer: 4, 5, 6 or 12; 2 for the lower part of 6
    columns  that share a scale: 32 or 16
    minimum  whether each group has a minimum; the integers then count from it
    """

    bits: int
    columns: int = GROUP
    minimum: bool = False

    @property
    def zero(self) -> int:
        """The integer that stands for 0, if there is no minimum."""
        if self.minimum:
            return 0
        return MIDDLE_OF_FOUR if self.is_wide else 1 << (self.bits - 1)

    @property
    def is_wide(self) -> bool:
        """Whether an integer is an int8 and four bits more."""
        return self.bits > 8

    @property
    def low_bits(self) -> int:
        """The bits of an integer that are in the array `low`."""
        return 2 if self.bits in (2, 6) else 4

    @property
    def name(self) -> str:
        """The name of the form in the names of kernels."""
        suffix = "_minimum" if self.minimum else "_halves" if self.columns < GROUP else ""
        return f"int{self.bits}{suffix}"

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the stored arrays by name; raises TypeRuleError for odd sizes."""
        blocks, groups = half_shape(rows, columns)[:2]
        shapes: dict[str, tuple[int, ...]] = {"low": (blocks, groups, self.low_bits, LANES)}
        if self.bits > 4:
            shapes["high"] = (blocks, groups, self.bits - self.low_bits, LANES)
        shapes["scale"] = (blocks, columns // self.columns, ROWS)
        if self.minimum:
            shapes["minimum"] = (blocks, groups, ROWS)
        return shapes


def pack_small(
    form: SmallForm,
    integers: NDArray[np.integer[Any]],
    scale: NDArray[np.float16],
    minimum: NDArray[np.float16] | None,
) -> tuple[NDArray[np.int8] | NDArray[np.float16], ...]:
    """Integers (N, K), scales and minimums (N, K / columns) in their stored order.

    Integers of 12 bits are i16, of at least -2048 and at most 2047; others are u8.
    """
    shapes = form.shapes(*integers.shape)
    blocks, groups = shapes["low"][:2]
    quads = integers.reshape(blocks, ROWS, groups, QUADS, QUAD).transpose(0, 2, 3, 1, 4)
    quads = quads.reshape(blocks, groups, QUADS, LANES)
    low = (quads & ((1 << form.low_bits) - 1)).astype(np.uint8)
    arrays: list[NDArray[np.int8] | NDArray[np.float16]] = [_packed(low, form.low_bits)]
    if "high" in shapes:
        high = (quads >> form.low_bits).astype(np.uint8)
        arrays.append(_packed(high, form.bits - form.low_bits))
    for factors in (scale, minimum):
        if factors is not None:
            by_row = factors.reshape(blocks, ROWS, -1).transpose(0, 2, 1)
            arrays.append(np.ascontiguousarray(by_row))
    return tuple(arrays)


def _packed(quads: NDArray[np.uint8], bits: int) -> NDArray[np.int8]:
    """Quads (..., 8, 64) of integers of 1, 2, 4 or 8 bits, as many in a byte as fit."""
    if bits == 4:
        first, second = np.split(quads, 2, axis=2)
        return (first | second << 4).view(np.int8)
    in_byte = 8 // bits
    planes = quads.reshape(*quads.shape[:2], bits, in_byte, LANES)
    places = (np.arange(in_byte, dtype=np.uint8) * bits)[:, np.newaxis]
    packed: NDArray[np.uint8] = np.bitwise_or.reduce(planes << places, axis=3)
    return packed.view(np.int8)
