"""Matrices of grids in plain NumPy, with the grids of the gguf package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hearthd.models.dsl.grids import Bits, Grid

    Array = NDArray[Any]


def levels_of(grid: Grid) -> Array:
    """The levels of the entries that the gguf package has: (entries, columns)."""
    quantized = getattr(gguf.quants, grid.name.upper())
    quantized.init_grid()
    values = quantized.grid.reshape(-1, grid.columns)
    levels: Array = np.searchsorted(np.unique(values), values)
    return levels


def _extra(arrays: Sequence[Array], grid: Grid) -> Array:
    """The extra bits of each row, i64 (N / 16, K / 32, 16)."""
    blocks, groups = arrays[0].shape[:2]
    return (
        arrays[1].reshape(blocks, groups, 16, -1).view(f"u{grid.extra_bytes}")[..., 0].astype(int)
    )


def _bit(extra: Array, bits: Bits, number: int) -> Array:
    return extra >> bits.start + number * bits.stride


def grid_multipliers(arrays: Sequence[Array], grid: Grid) -> Array:
    """The odd numbers that multiply the scales of groups: (N / 16, K / 32, 16)."""
    assert grid.multiplier is not None
    extra = _extra(arrays, grid)
    numbers = [_bit(extra, grid.multiplier, i) % 2 << i for i in range(grid.multiplier_bits)]
    multipliers: Array = 2 * np.sum(numbers, axis=0) + 1
    return multipliers


def grid_integers(arrays: Sequence[Array], grid: Grid) -> Array:
    """i32 (N / 16, K / 32, 8, 64) of stored arrays: levels, with signs or offsets above them."""
    blocks, groups = arrays[0].shape[:2]
    count, upper = 32 // grid.columns, np.zeros(4, int)
    extra = _extra(arrays, grid) if grid.extra_bytes else upper
    integers = np.zeros((blocks, groups, 16, 32), np.int32)
    stored = arrays[0].view(np.uint8).astype(int).reshape(blocks, groups, -1)
    for row in range(16):
        for entry in range(count):
            index = stored[..., entry // 4 * 64 + row // 4 * 16 + entry % 4 * 4 + row % 4]
            if grid.upper is not None:
                index = index + 256 * (_bit(extra[..., row], grid.upper, entry) % (grid.count >> 8))
            columns = slice(entry * grid.columns, (entry + 1) * grid.columns)
            integers[..., row, columns] = levels_of(grid)[index]
    integers |= _tops(arrays, grid, extra) << grid.level_bits
    by_quad = integers.reshape(blocks, groups, 16, 8, 4).transpose(0, 1, 3, 2, 4)
    return by_quad.reshape(blocks, groups, 8, 64)


def _tops(arrays: Sequence[Array], grid: Grid, extra: Array) -> Array:
    """The bit above the level of each column: (N / 16, K / 32, 16, 32)."""
    blocks, groups = arrays[0].shape[:2]
    tops = np.zeros((blocks, groups, 16, 32), np.int32)
    for column in range(32):
        if grid.offset is not None:
            tops[..., column] = _bit(extra, grid.offset, column // 8) % 2
            continue
        signs = arrays[_sign_array(grid)].view(np.uint8)
        byte = signs.reshape(blocks, groups, 16, 4)[..., column % 4]
        tops[..., column] = byte >> column // 8 + column % 8 // 4 * 4 & 1
        if grid.extra_bytes == 4 and column % 8 == 7:
            tops[..., column] = tops[..., column - 7 : column].sum(axis=3) % 2
    return tops


def _sign_array(grid: Grid) -> int:
    """Which of the stored arrays has the signs."""
    return 2 if grid.extra_bytes in (1, 2) else 1
