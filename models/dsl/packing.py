"""Matrices of int8 in groups of 32 columns, as the kernels read them.

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

`ROWS`, `GROUP` and `QUAD` also stand in kernels/grouped.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.dsl.types import TypeRuleError

if TYPE_CHECKING:
    from numpy.typing import NDArray


ROWS = 16
GROUP = 32
QUAD = 4
QUADS = GROUP // QUAD
LANES = ROWS * QUAD
# Stands for both lower halves of a byte, 8 and 8, where they are not read: an i8.
MIDDLE = -0x78


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
