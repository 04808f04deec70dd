"""Positions of a table that is stretched over an image, by bicubic interpolation.

Source: `grid_sample` of PyTorch, with mode "bicubic", padding "border" and corners not aligned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.types import DType
from hearthd.models.towers.tower_config import axis_of, mixed_positions

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

_SHARPNESS = -0.75
_REACH = 2  # entries on each side of a place that count


def bicubic_positions(table: Tensor, side: int, places: Tensor, grid: Tensor) -> Tensor:
    """Embeddings (N, E) of places i32 (2, N) in a table (side^2, E).

    `grid` i32 (2,) are the rows and columns of the image, over which the table is stretched.
    """
    down, across = (_weights(axis_of(places, i), f.narrow(grid, 0, i, i + 1), side) for i in (0, 1))
    return mixed_positions(table, down, across)


def _weights(place: Tensor, count: Tensor, side: int) -> Tensor:
    """The weights of the entries of a table's axis at places i32 (N,): f32 (N, side).

    `count` i32 (1,) places are spread over the axis. Beyond its ends are copies of the last entry.
    """
    count = ops.convert(count, dtype=DType.F32)
    scale = ops.full_like(count, float(side)) / count
    center = (ops.convert(place, dtype=DType.F32) + 0.5) * f.trailing(scale, place.shape) + -0.5
    wide = side + 2 * _REACH
    entry = ops.iota(shape=(place.shape[0], wide), axis=1, dtype=DType.I32)
    entry = ops.convert(entry, dtype=DType.F32) + float(-_REACH)
    near = _kernel(ops.absolute(entry - f.along_axes(center, entry, (1,))))
    nearest = np.clip(np.arange(wide) - _REACH, 0, side - 1)
    folded = (nearest[:, None] == np.arange(side)).astype(np.float32)
    return f.matmul(near, ops.constant(value=folded))


def _kernel(distance: Tensor) -> Tensor:
    """Keys' cubic kernel: 1 at 0, 0 at 1 and from 2 on. Each of its parts is 0 at its ends."""
    a = _SHARPNESS
    middle, end = (ops.full_like(distance, limit) for limit in (1.0, 2.0))
    inner = ops.minimum(distance, middle)
    outer = ops.minimum(ops.maximum(distance, middle), end)
    near = ((a + 2) * inner - (a + 3)) * inner * inner + 1.0
    far = ((outer * a - 5 * a) * outer + 8 * a) * outer - 4 * a
    return near + far
