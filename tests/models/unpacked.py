"""Matrices in groups in plain NumPy: the values that the kernels' stored form stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def real_weights(weight: Array, scale: Array) -> Array:
    """f32 (N, K) of integers i8 (N / 16, K / 32, 8, 64) and scales f16 (N / 16, K / 32, 16)."""
    blocks, groups = weight.shape[:2]
    result = np.empty((blocks, 16, groups, 8, 4), np.float32)
    for row in range(16):
        lanes = weight[..., 4 * row : 4 * row + 4].astype(np.float32)
        result[:, row] = lanes * scale[..., row, np.newaxis, np.newaxis].astype(np.float32)
    return result.reshape(blocks * 16, groups * 32)


def whole(upper: Array, lower: Array | None) -> Array:
    """The integers of two halves; without the lower one, the middle of what they may be."""
    high = upper.view(np.uint8)
    low = np.full_like(high, 0x88) if lower is None else lower.view(np.uint8)
    both = np.concatenate([high << 4 | low & 0x0F, high & 0xF0 | low >> 4], axis=2)
    return both.view(np.int8)
