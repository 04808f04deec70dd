"""The best scale of a group of columns for signed integers of few bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

# The scales that are tried, as parts of the scale that just reaches the largest magnitude.
_PARTS = np.linspace(0.7, 1.05, 8, dtype=np.float32)
# Smaller scales are 0 in f16.
_MIN_SCALE = 2.0**-25


def best_scales(values: Floats, importance: Floats, bits: int) -> Floats:
    """The scale of each row of values f32 (N, K) with about the least error: f32 (N,), f16 values.

    Integers are -2^(bits - 1) to 2^(bits - 1) - 1, and a scale may be negative: either end of the
    values can be the one with the integer more. The error is the sum over the columns of
    importance (K,) times the square of what is missed.
    """
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    ends = np.take_along_axis(values, np.abs(values).argmax(axis=1)[:, np.newaxis], axis=1)[:, 0]
    best, scales = np.zeros_like(ends), np.zeros_like(ends)
    for end in (low, high):
        for part in _PARTS:
            integers = quotients(values, ends * (part / np.float32(end)), bits)
            weighted = integers * importance
            squares = np.einsum("nk,nk->n", weighted, integers)
            products = np.einsum("nk,nk->n", weighted, values)
            # The scale with the least error for these integers, and the error that it takes away.
            scale = np.divide(products, squares, out=np.zeros_like(ends), where=squares > 0)
            better = products * scale > best
            best[better], scales[better] = (products * scale)[better], scale[better]
    with np.errstate(over="ignore"):  # an infinity is refused where the scale is stored
        return scales.astype(np.float16).astype(np.float32)


def quotients(values: Floats, scales: Floats, bits: int) -> Floats:
    """Rows f32 (N, K) divided by their scales (N,), as whole numbers of `bits` signed bits.

    A row whose scale is 0 in f16 becomes 0.
    """
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=np.abs(scales) > _MIN_SCALE)
    integers = values * inverse[:, np.newaxis]
    np.rint(integers, out=integers)
    return np.clip(integers, -(1 << (bits - 1)), (1 << (bits - 1)) - 1, out=integers)
