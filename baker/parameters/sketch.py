"""The sketch of a drafter's output head (models/dsl/fused/sketched_head.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.fused.sketched_head import SKETCH
from hearthd.models.dsl.matrix_packing import pack

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock
    from hearthd.models.dsl.matrix_format import MatrixFormat


def sketch_of(rows: NDArray[np.float32], center: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
    """The arrays of the sketch of some rows f32 (N, K) of a matrix, N a multiple of sixteen.

    `center` is the mean of all rows, without columns of zeros that were added at their end.
    """
    centered = rows - np.pad(center, (0, rows.shape[1] - len(center)))
    rotated = f.rotate_heads.op.evaluate((centered[:, np.newaxis],), {})[:, 0]
    starts = np.arange(0, rotated.shape[1], SKETCH.super_block)
    counts = np.diff(starts, append=rotated.shape[1])
    scale = np.add.reduceat(np.abs(rotated), starts, axis=1) / counts
    integers = (SKETCH.zero + np.where(rotated < 0, -1, 1)).astype(np.uint8)
    return pack(SKETCH, integers, scale.astype(np.float16))


def mean_row(blocks: Iterable[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The mean of the rows of all blocks, f32 (K,)."""
    sums = [(block.sum(axis=0, dtype=np.float64), len(block)) for block in blocks]
    total = np.sum([row for row, _ in sums], axis=0) / sum(count for _, count in sums)
    return np.asarray(total, np.float32)


def real_values(block: IntegerBlock, matrix_format: MatrixFormat) -> NDArray[np.float32]:
    """The real weights f32 (N, K) of a format in two parts, which has no minimums."""
    assert matrix_format.split is not None, matrix_format.name
    columns = block.integers.shape[1]
    scale = block.scale / np.float32(matrix_format.steps)
    shared = matrix_format.super_block or matrix_format.columns
    scale = np.repeat(scale, shared, axis=1)[:, :columns]
    if block.multipliers is not None:
        scale *= np.repeat(block.multipliers[..., 0], matrix_format.columns, axis=1)
    return (block.integers.astype(np.float32) - matrix_format.zero) * scale
