"""The integers that matrices of grids stand for (models/dsl/grids.py), from their stored arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.grids import SIGN_BYTES, sign_bit
from hearthd.models.dsl.matrix_format import GROUP, QUAD, QUAD_BYTES, QUADS, ROWS
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.grids import Grid
    from hearthd.models.dsl.matrix_format import MatrixFormat

# Of the signs of eight columns (quad, row, column), those that are stored.
_STORED = np.ones((2, 1, QUAD), np.int32)
_STORED[1, 0, 3] = 0


def grid_integers(planes: Sequence[Tensor], matrix_format: MatrixFormat) -> Tensor:
    """The integers i32 (N / 16, K / 32, 8, 64) of the stored arrays of integers."""
    grid = matrix_format.grid
    assert grid is not None, matrix_format.name
    blocks, groups = planes[0].shape[:2]
    indices, extra = _indices(planes[0], grid.columns), None
    if grid.extra_bytes:
        extra = _extra(planes[1], grid)
        if grid.upper is not None:
            upper = _numbers(extra, indices.shape[2], grid.upper.start, grid.upper.stride)
            indices = ops.bitwise_or(indices, _shifted_up(_lowest(upper, grid.count // 256 - 1), 8))
    words = ops.gather(ops.constant(value=grid.words.astype(np.int32)), indices, axis=0)
    shape = (*words.shape, 1)
    columns = (ops.reshape(_shifted_down(words, start), shape=shape) for start in grid.starts)
    entries = _lowest(ops.concatenate(*columns, axis=4), (1 << grid.level_bits) - 1)
    parts = grid.columns // QUAD
    shape = (blocks, groups, QUADS // parts, ROWS, parts, QUAD)
    ordered = ops.transpose(ops.reshape(entries, shape=shape), order=(0, 1, 2, 4, 3, 5))
    levels = ops.reshape(ordered, shape=(blocks, groups, QUADS, QUAD_BYTES))
    if grid.offset is not None:
        assert extra is not None, grid.name
        offsets = _numbers(extra, QUADS // 2, grid.offset.start, grid.offset.stride)
        like = (blocks, groups, QUADS // 2, 2, ROWS, QUAD)
        top = ops.broadcast(_lowest(offsets, 1), shape=like, axes=(0, 1, 2, 4))
    else:
        top = _signs(planes[-1], has_even=grid.extra_bytes == SIGN_BYTES)
    top = ops.reshape(top, shape=levels.shape)
    return ops.bitwise_or(levels, _shifted_up(top, grid.level_bits))


def grid_multipliers(planes: Sequence[Tensor], grid: Grid) -> Tensor:
    """The multipliers i32 (N / 16, K / 32, 16) of the scales of groups."""
    assert grid.multiplier is not None, grid.name
    extra, number = _extra(planes[1], grid), None
    for i in range(grid.multiplier_bits):
        bit = _lowest(_shifted_down(extra, grid.multiplier.start + i * grid.multiplier.stride), 1)
        number = bit if number is None else ops.bitwise_or(number, _shifted_up(bit, i))
    assert number is not None, grid.name
    return number * 2 + 1


def _indices(stored: Tensor, columns: int) -> Tensor:
    """The lowest bits of indices i32 (N / 16, K / 32, entries, 16)."""
    blocks, groups = stored.shape[:2]
    fours = GROUP // columns // 4
    by_four = ops.reshape(_unsigned(stored), shape=(blocks, groups, fours, ROWS // 4, 4, 4))
    ordered = ops.transpose(by_four, order=(0, 1, 2, 4, 3, 5))
    return ops.reshape(ordered, shape=(blocks, groups, GROUP // columns, ROWS))


def _extra(stored: Tensor, grid: Grid) -> Tensor:
    """The extra bits i32 (N / 16, K / 32, 16) of each row."""
    blocks, groups = stored.shape[:2]
    bytes_ = ops.reshape(_unsigned(stored), shape=(blocks, groups, ROWS, grid.extra_bytes))
    result = _last(bytes_, 0)
    for i in range(1, grid.extra_bytes):
        result = ops.bitwise_or(result, _shifted_up(_last(bytes_, i), 8 * i))
    return result


def _signs(stored: Tensor, *, has_even: bool) -> Tensor:
    """A sign i32 (N / 16, K / 32, 4, 2, 16, 4) of each column of each row of entries of eight."""
    blocks, groups = stored.shape[:2]
    plane = ops.reshape(_unsigned(stored), shape=(blocks, groups, 1, QUAD_BYTES))
    quads = [_shifted_down(plane, sign_bit(quad)) for quad in range(QUADS)]
    shape = (blocks, groups, QUADS // 2, 2, ROWS, QUAD)
    signs = ops.reshape(_lowest(ops.concatenate(*quads, axis=2), 1), shape=shape)
    if not has_even:
        return signs
    is_stored = ops.broadcast(ops.constant(value=_STORED), shape=shape, axes=(3, 4, 5))
    stored_signs = signs * is_stored
    count = ops.reduce_sum(ops.convert(stored_signs, dtype=DType.F32), axes=(3, 5))
    odd = _lowest(ops.convert(count, dtype=DType.I32), 1)
    eighth = ops.broadcast(odd, shape=shape, axes=(0, 1, 2, 4))
    return stored_signs + eighth * (1 - is_stored)


def _numbers(extra: Tensor, count: int, start: int, stride: int) -> Tensor:
    """Extra bits (N / 16, K / 32, count, 16) of each entry, from its first bit on."""
    shape = (*extra.shape[:2], 1, ROWS)
    entries = (_shifted_down(extra, start + i * stride) for i in range(count))
    return ops.concatenate(*(ops.reshape(entry, shape=shape) for entry in entries), axis=2)


def _last(x: Tensor, index: int) -> Tensor:
    """x[..., index]."""
    return ops.reshape(f.narrow(x, x.type.rank - 1, index, index + 1), shape=x.shape[:-1])


def _unsigned(stored: Tensor) -> Tensor:
    return _lowest(ops.convert(stored, dtype=DType.I32), 255)


def _lowest(x: Tensor, mask: int) -> Tensor:
    return ops.bitwise_and(x, ops.full_like(x, mask))


def _shifted_up(x: Tensor, count: int) -> Tensor:
    return ops.shift_left(x, ops.full_like(x, count)) if count else x


def _shifted_down(x: Tensor, count: int) -> Tensor:
    return ops.shift_right(x, ops.full_like(x, count)) if count else x
