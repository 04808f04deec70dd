"""Matrices in groups in plain NumPy: the values that the kernels' stored form stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def _nibbles(packed: Array) -> Array:
    """i32 (..., 8, 64) of four bits of quad i and four of quad i + 4 in each byte."""
    byte = packed.view(np.uint8).astype(np.int32)
    return np.concatenate([byte & 15, byte >> 4], axis=2)


def small_weights(arrays: Sequence[Array], *, bits: int, has_minimum: bool) -> Array:
    """f32 (N, K) of the stored arrays of integers of 4 to 6 or 12 bits."""
    low, *rest = arrays
    blocks, groups = low.shape[:2]
    if bits == 6:
        integers = 4 * _nibbles(rest.pop(0))
        two = low.view(np.uint8).astype(np.int32)
        for quad in range(8):
            integers[:, :, quad] += two[:, :, quad // 4] >> quad % 4 * 2 & 3
    else:
        integers = _nibbles(low)
    if bits == 12:
        integers += 16 * rest.pop(0).astype(np.int32)
    elif bits == 5:
        high = rest.pop(0).view(np.uint8).astype(np.int32)
        for quad in range(8):
            integers[:, :, quad] += 16 * (high[:, :, 0] >> quad & 1)
    values = np.empty((blocks, 16, groups * 32), np.float32)
    for row in range(16):
        lanes = integers[..., 4 * row : 4 * row + 4].reshape(blocks, -1).astype(np.float32)
        scale = rest[0][..., row].astype(np.float32)
        scale = np.repeat(scale, groups * 32 // scale.shape[1], axis=1)
        zero = 0 if has_minimum else 8 if bits == 12 else 2 ** (bits - 1)
        values[:, row] = (lanes - zero) * (scale / 16 if bits == 12 else scale)
        if has_minimum:
            values[:, row] += np.repeat(rest[1][..., row].astype(np.float32), 32, axis=1)
    return values.reshape(blocks * 16, groups * 32)
