"""The stored arrays of a matrix of integers, in the order in which kernels read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl.base_three import packed_digits
from hearthd.models.dsl.grids import SIGN_BYTES, sign_bit, with_free_bits
from hearthd.models.dsl.matrix_format import GROUP, QUAD, QUAD_BYTES, QUADS, ROWS
from hearthd.models.dsl.types import TypeRuleError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.grids import Bits, Grid
    from hearthd.models.dsl.matrix_format import MatrixFormat


def pack(
    matrix_format: MatrixFormat,
    integers: NDArray[np.integer[Any]],
    scale: NDArray[np.float16] | NDArray[np.float32] | NDArray[np.int8],
    minimum: NDArray[np.float16] | None = None,
    multipliers: NDArray[np.int8] | None = None,
) -> tuple[NDArray[np.int8] | NDArray[np.float16], ...]:
    """The stored arrays of integers (N, K), and of scales and minimums (N, scales of a row).

    Integers are i16 if they have 12 bits, otherwise u8, or i8 if they are signed. Scales are of
    the format's type. Multipliers are (N, K / columns, 1), of the scales, or
    (N, K / columns, 2), also of the minimums.

    Raises TypeRuleError for sizes that `arrays` rejects, and for integers that a grid lacks.
    """
    assert (minimum is not None) == matrix_format.minimum, matrix_format.name
    assert (multipliers is not None) == matrix_format.has_multipliers, matrix_format.name
    stored, *_ = matrix_format.arrays(*integers.shape).values()
    blocks, groups = stored.shape[:2]
    # A quad is moved as one element of 4 or 8 bytes, which is four times as fast as its integers.
    quads = np.ascontiguousarray(integers).view(f"u{QUAD * integers.itemsize}")
    ordered = quads.reshape(blocks, ROWS, groups, QUADS).transpose(0, 2, 3, 1)
    unsigned = np.ascontiguousarray(ordered).view(f"u{integers.itemsize}")
    arrays: list[Any] = []
    for plane in matrix_format.planes if matrix_format.grid is None else ():
        bits: NDArray[Any] = unsigned >> plane.start if plane.start else unsigned
        if plane.start + plane.bits < matrix_format.bits:
            bits = bits & ((1 << plane.bits) - 1)
        bits = bits.astype(np.uint8, copy=False)
        arrays.append(packed_digits(bits) if plane.has_digits else _packed(bits, plane.bits))
    if matrix_format.grid is not None:
        arrays = _grid_arrays(matrix_format, integers.view(np.uint8), unsigned, multipliers)
    for factors in (scale, minimum):
        if factors is not None:
            by_row = factors.reshape(blocks, ROWS, -1).transpose(0, 2, 1)
            arrays.append(np.ascontiguousarray(by_row))
    if multipliers is not None and matrix_format.multiplier_bits:
        if matrix_format.multiplier_bits == 4:
            if not matrix_format.minimum:
                multipliers = multipliers.reshape(len(integers), groups, -1) >> 1
            multipliers = multipliers[..., :1] | multipliers[..., 1:] << 4
        by_block = multipliers.reshape(blocks, ROWS, *multipliers.shape[1:])
        arrays.append(np.ascontiguousarray(by_block.transpose(0, 2, 3, 1)))
    return tuple(arrays)


def numbers_of(matrix_format: MatrixFormat, values: NDArray[np.int8]) -> NDArray[np.uint8]:
    """The integers that number values of a format, the lowest of several; of any shape."""
    numbers = np.zeros(256, np.uint8)
    for number, value in reversed([*enumerate(matrix_format.values)]):
        numbers[value % 256] = number
    return numbers[values.view(np.uint8)]


def _grid_arrays(
    matrix_format: MatrixFormat,
    integers: NDArray[np.uint8],
    quads: NDArray[np.uint8],
    multipliers: NDArray[np.int8] | None,
) -> list[NDArray[np.int8]]:
    """The arrays of the integers (N, K) of a grid, whose quads are (N / 16, K / 32, 8, 64)."""
    grid = matrix_format.grid
    assert grid is not None, matrix_format.name
    blocks, groups = quads.shape[:2]
    indices = grid.indices(integers & np.uint8((1 << grid.level_bits) - 1))
    # Four entries of four rows follow each other.
    by_row = indices.astype(np.uint8).reshape(blocks, ROWS // 4, 4, groups, -1, 4)
    index = np.ascontiguousarray(by_row.transpose(0, 3, 4, 1, 5, 2)).view(np.int8)
    arrays = [index.reshape(blocks, groups, -1, QUAD_BYTES)]
    bits = _extra_bits(grid, indices, integers >> np.uint8(grid.level_bits), multipliers)
    extra = np.ascontiguousarray(bits.reshape(blocks, ROWS, groups).transpose(0, 2, 1))
    if grid.extra_bytes not in (0, SIGN_BYTES):
        rows = extra.astype(f"u{grid.extra_bytes}").view(np.int8)
        arrays.append(rows.reshape(blocks, groups, grid.extra_bytes, ROWS))
    if grid.offset is None:
        at = np.array([sign_bit(quad) for quad in range(QUADS)], np.uint8)[:, np.newaxis]
        signs = np.bitwise_or.reduce((quads >> grid.level_bits) << at, axis=2).view(np.uint32)
        if grid.extra_bytes == SIGN_BYTES:
            signs = with_free_bits(signs, extra)
        arrays.append(signs.view(np.int8)[:, :, np.newaxis])
    return arrays


def _extra_bits(
    grid: Grid,
    indices: NDArray[np.int64],
    offsets: NDArray[np.uint8],
    multipliers: NDArray[np.int8] | None,
) -> NDArray[np.uint32]:
    """The extra bits u32 (N, K / 32): upper bits of indices, offsets of columns, multipliers.

    Raises TypeRuleError where columns that share an offset have different ones.
    """
    rows, groups = len(offsets), offsets.shape[1] // GROUP
    extra = np.zeros((rows, groups), np.uint32)
    if grid.upper is not None:
        extra |= _spread(indices.reshape(rows, groups, -1) >> 8, grid.upper)
    if grid.offset is not None:
        shared = grid.columns if grid.offset.stride else GROUP
        by_entry = offsets.reshape(rows, groups, -1, shared)
        if (by_entry != by_entry[..., :1]).any():
            raise TypeRuleError("columns that share an offset have different ones")
        extra |= _spread(by_entry[..., 0], grid.offset)
    if grid.multiplier is not None:
        assert multipliers is not None, grid.name
        numbers = multipliers.reshape(rows, groups, 1) >> 1
        bits = numbers >> np.arange(grid.multiplier_bits, dtype=np.int8) & 1
        extra |= _spread(bits, grid.multiplier)
    return extra


def _spread(numbers: NDArray[Any], bits: Bits) -> NDArray[np.uint32]:
    """Numbers (N, groups, n) of a few bits, each where `bits` says: u32 (N, groups)."""
    starts = bits.start + bits.stride * np.arange(numbers.shape[2], dtype=np.uint32)
    return np.asarray(np.bitwise_or.reduce(numbers.astype(np.uint32) << starts, axis=2))


def _packed(quads: NDArray[np.uint8], bits: int) -> NDArray[np.int8]:
    """Pack quads (..., 8, 64) of integers of 1, 2, 4 or 8 bits into full bytes."""
    if bits == 8:
        return quads.view(np.int8)
    if bits == 4:
        low, high = np.split(quads, 2, axis=2)
        return (low | high << 4).view(np.int8)
    in_byte = 8 // bits
    planes = quads.reshape(*quads.shape[:2], bits, in_byte, QUAD_BYTES)
    starts = (np.arange(in_byte, dtype=np.uint8) * bits)[:, np.newaxis]
    packed: NDArray[np.uint8] = np.bitwise_or.reduce(planes << starts, axis=3)
    return packed.view(np.int8)
