"""Matrices of integers in plain NumPy: the values that the kernels' stored form stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tests.models.unpacked_grids import grid_integers, grid_multipliers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hearthd.models.dsl.matrix_format import MatrixFormat

    Array = NDArray[Any]


def float8(stored: Array) -> Array:
    """Floats E4M3 (OCP 8-bit Floating Point) of bytes below 0x7F, f32."""
    values: Array = stored.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return values


def _digits_of_quad(plane: Array, quad: int) -> Array:
    """i32 (N / 16, K / 32, 64) of a quad's digits in base 3, of u8 (N / 16, K / 32, 1, 104)."""
    stored = plane[:, :, 0].astype(np.int32)
    if quad < 5:
        first: Array = ((stored[..., :64] * 3**quad & 255) * 3) >> 8
        return first
    low, high = stored[..., 64:96], stored[..., 96:, np.newaxis]
    fifth = (high >> np.arange(8) & 1).swapaxes(2, 3).reshape(*high.shape[:2], 64)
    numbers = np.concatenate([low & 15, low >> 4], axis=2) + 16 * fifth
    digits: Array = numbers // 3 ** (7 - quad) % 3
    return digits


def _bits_of_quad(plane: Array, bits: int, quad: int) -> Array:
    """i32 (N / 16, K / 32, 64) of a quad's bits in a plane u8 (N / 16, K / 32, bits, 64)."""
    if bits == 8:
        return plane[:, :, quad].astype(np.int32)
    if bits == 4:
        byte, shift = quad % 4, quad // 4 * 4
    elif bits == 2:
        byte, shift = quad // 4, quad % 4 * 2
    else:
        byte, shift = 0, quad
    return plane[:, :, byte].astype(np.int32) >> shift & (1 << bits) - 1


def stored_integers(arrays: Sequence[Array], matrix_format: MatrixFormat) -> Array:
    """i32 (N / 16, K / 32, 8, 64) of the planes among stored arrays."""
    if matrix_format.grid is not None:
        return grid_integers(arrays, matrix_format.grid)
    blocks, groups = arrays[0].shape[:2]
    integers = np.zeros((blocks, groups, 8, 64), np.int32)
    for array, plane in zip(arrays, matrix_format.planes, strict=False):
        for quad in range(8):
            stored = array.view(np.uint8)
            if plane.has_digits:
                bits = _digits_of_quad(stored, quad)
            else:
                bits = _bits_of_quad(stored, plane.bits, quad)
            integers[:, :, quad] += bits << plane.start
    integers |= matrix_format.missing
    if matrix_format.signed:
        top = 1 << matrix_format.bits - 1
        integers = (integers ^ top) - top
    return integers


def stored_factors(arrays: Sequence[Array], matrix_format: MatrixFormat) -> list[Array]:
    """f32 (N / 16, K / columns, 16) of the scales and minimums among stored arrays."""
    stored = arrays[matrix_format.integer_arrays :]
    factors = [array.astype(np.float32) for array in stored[: 1 + matrix_format.minimum]]
    if matrix_format.exponents:
        factors[0] = (stored[0].view(np.uint8).astype(np.uint32) << 23).view(np.float32)
    if matrix_format.super_block:
        groups = arrays[0].shape[1] * 32 // matrix_format.columns
        each = matrix_format.super_block // matrix_format.columns
        factors = [np.repeat(factor, each, axis=1)[:, :groups] for factor in factors]
    grid = matrix_format.grid
    if grid is not None and grid.multiplier is not None:
        return [factors[0] * grid_multipliers(arrays, grid)]
    if not matrix_format.multiplier_bits:
        return factors
    multipliers = float8(stored[-1]) if matrix_format.multiplier_floats else stored[-1]
    if matrix_format.multiplier_bits == 4 and not matrix_format.minimum:
        halves = np.concatenate([multipliers & 15, multipliers >> 4 & 15], axis=2)
        return [factors[0] * (2 * halves.reshape(factors[0].shape) + 1)]
    if matrix_format.multiplier_bits == 4:
        multipliers = np.concatenate([multipliers & 15, multipliers >> 4 & 15], axis=2)
    return [factor * multipliers[:, :, i] for i, factor in enumerate(factors)]


def real_weights(arrays: Sequence[Array], matrix_format: MatrixFormat) -> Array:
    """f32 (N, K) of stored arrays, by the formula of `MatrixFormat`."""
    integers = stored_integers(arrays, matrix_format)
    blocks, groups = integers.shape[:2]
    scale, *minimum = stored_factors(arrays, matrix_format)
    values = np.empty((blocks, 16, groups * 32), np.float32)
    for row in range(16):
        lanes = integers[..., 4 * row : 4 * row + 4].reshape(blocks, -1)
        if matrix_format.values:
            lanes = np.array(matrix_format.values)[lanes]
        factor = np.repeat(scale[..., row], matrix_format.columns, axis=1)
        values[:, row] = (lanes - matrix_format.zero) * (factor / matrix_format.steps)
        for one in minimum:
            values[:, row] += np.repeat(one[..., row], matrix_format.columns, axis=1)
    return values.reshape(blocks * 16, groups * 32)
