"""Attention of the patches of an image within square windows of it.

`N` is patches, `U` the squares of patches that give a row of embeddings. The patches are put in an
order by windows, so that each window is a part of at most `B` patches: those next to the block of
`B` patches that it begins in are all that a patch can see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.types import DType
from hearthd.models.towers.tower_config import axis_of

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

_MAX_WINDOWS = 2**14  # in a row of an image
_PADDING, _OUTSIDE = -1, -2  # numbers of the windows of patches after the image's, and of none


class SquareWindows:
    """Orders of the squares of an image, whose patches follow each other."""

    def __init__(self, grid: Tensor, patches: int, merged: int, side: int) -> None:
        """Of rows and columns of patches i32 (2,), in windows of `side` x `side` squares.

        `merged` patches are a side of a square.
        """
        self.merged, self.side, shape = merged, side, (patches // merged**2,)
        squares = _quotient(grid, ops.full_like(grid, merged))
        self.rows, self.columns = (
            f.trailing(f.narrow(squares, 0, i, i + 1), shape) for i in (0, 1)
        )
        self.index = ops.iota(shape=shape, axis=0, dtype=DType.I32)

    def by_window(self, x: Tensor) -> Tensor:
        """x (N, ...) in the order by windows: the squares of a row of windows, window by window."""
        down = _quotient(self.index, self.columns * self.side)
        rest = self.index - down * self.columns * self.side
        height = self._extent(down, self.rows)
        across = _quotient(rest, height * self.side)
        rest = rest - across * height * self.side
        width = self._extent(across, self.columns)
        row = _quotient(rest, width)
        line = (down * self.side + row) * self.columns
        return self._reordered(x, line + across * self.side + rest - row * width)

    def by_row(self, x: Tensor) -> Tensor:
        """The inverse of `by_window`."""
        row = _quotient(self.index, self.columns)
        column = self.index - row * self.columns
        down, across = (_quotient(x, ops.full_like(x, self.side)) for x in (row, column))
        height, width = self._extent(down, self.rows), self._extent(across, self.columns)
        before = down * self.side * self.columns + across * self.side * height
        line = (row - down * self.side) * width
        return self._reordered(x, before + line + column - across * self.side)

    def numbers(self, places: Tensor, count: Tensor) -> Tensor:
        """The number of the window of each patch at places i32 (2, N): i32 (N,).

        The patches after the first `count` i32 (1,) are padding.
        """
        row, column = (
            _quotient(place, ops.full_like(place, self.side * self.merged))
            for place in (axis_of(places, 0), axis_of(places, 1))
        )
        number = row * _MAX_WINDOWS + column
        index = ops.iota(shape=number.shape, axis=0, dtype=DType.I32)
        is_real = ops.compare(index, f.trailing(count, number.shape), direction="LT")
        return ops.select(is_real, number, ops.full_like(number, _PADDING))

    def _extent(self, window: Tensor, squares: Tensor) -> Tensor:
        """The squares of windows along an axis; 1 for windows after the last one."""
        rest = ops.minimum(squares - window * self.side, ops.full_like(squares, self.side))
        return ops.maximum(rest, ops.full_like(rest, 1))

    def _reordered(self, x: Tensor, order: Tensor) -> Tensor:
        """x (N, C) with the square of each place of an order i32 (U,); padding stays."""
        count, width = x.shape
        is_real = ops.compare(self.index, self.rows * self.columns, direction="LT")
        order = ops.select(is_real, order, self.index)
        squares = ops.reshape(x, shape=(order.shape[0], self.merged**2 * width))
        return ops.reshape(ops.gather(squares, order, axis=0), shape=(count, width))


def attended_in_windows(
    query: Tensor, key: Tensor, value: Tensor, windows: Tensor, size: int
) -> Tensor:
    """Attention of each patch to the patches of its window, of at most `size` patches.

    Query, key and value (N, H, D), in the order by windows, and their numbers i32 (N,)
    -> (N, H * D).
    """
    rows, heads, width = query.shape
    more = -rows % size
    blocks = (rows + more) // size
    padding = ((0, more, 0), (0, 0, 0), (0, 0, 0))
    query, key, value = (
        ops.reshape(ops.pad(x, padding=padding, value=0.0), shape=(blocks, size, heads, width))
        for x in (query, key, value)
    )
    windows = ops.concatenate(windows, _filled((more,), _PADDING), axis=0) if more else windows
    windows = ops.reshape(windows, shape=(blocks, size))
    keys, values = _with_neighbors(key, 0.0), _with_neighbors(value, 0.0)
    scores = f.matmul(
        ops.transpose(query, order=(0, 2, 1, 3)), ops.transpose(keys, order=(0, 2, 3, 1))
    )
    scores = scores * width**-0.5
    seen = ops.compare(
        ops.broadcast(windows, shape=scores.shape, axes=(0, 2)),
        ops.broadcast(_with_neighbors(windows, _OUTSIDE), shape=scores.shape, axes=(0, 3)),
        direction="EQ",
    )
    weights = f.softmax(ops.select(seen, scores, ops.full_like(scores, -1e9)))
    mixed = f.matmul(weights, ops.transpose(values, order=(0, 2, 1, 3)))
    mixed = ops.reshape(
        ops.transpose(mixed, order=(0, 2, 1, 3)), shape=(blocks * size, heads * width)
    )
    return f.narrow(mixed, 0, 0, rows)


def _with_neighbors(x: Tensor, value: float) -> Tensor:
    """Blocks (n, B, ...) with the block before and after each: (n, 3 B, ...)."""
    count = x.shape[0]
    edge = _filled((1, *x.shape[1:]), value)
    # A barrier, since the compiler finds no order of the kernels that read slices of it.
    padded = ops.barrier(ops.concatenate(edge, x, edge, axis=0))
    return ops.concatenate(*(f.narrow(padded, 0, i, i + count) for i in range(3)), axis=1)


def _filled(shape: tuple[int, ...], value: float) -> Tensor:
    """A tensor of one number, i32 or f32 as the number is."""
    constant = np.int32(value) if isinstance(value, int) else np.float32(value)
    return ops.broadcast(ops.constant(value=constant), shape=shape, axes=())


def _quotient(x: Tensor, divisor: Tensor) -> Tensor:
    """The integer quotient of i32 from 0 below 2^22."""
    ratio = (ops.convert(x, dtype=DType.F32) + 0.5) / ops.convert(divisor, dtype=DType.F32)
    return ops.convert(ops.floor(ratio), dtype=DType.I32)
