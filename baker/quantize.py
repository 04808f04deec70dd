"""From f32 rows to the types that a bundle stores. Knows no files and no tensor names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The largest value of a symmetric int8.
INT8_MAX = 127
# A row whose largest value is smaller than this is stored as zero: its scale would be subnormal.
_SMALLEST_ROW = np.float32(INT8_MAX) * np.finfo(np.float32).tiny


class NotFiniteError(ValueError):
    """Weights hold a NaN or an infinity, or a value too large for the type to store."""


def to_bf16(block: NDArray[np.float32]) -> NDArray[Any]:
    """f32 of any shape as ml_dtypes.bfloat16, rounded to nearest, ties to even.

    Raises NotFiniteError for NaN, infinity and what bf16 would round to infinity.
    """
    # bfloat16 has NumPy's rules of overflow: the check below says more than its warning.
    with np.errstate(over="ignore"):
        stored = block.astype(ml_dtypes.bfloat16)
    _require_finite(block, stored)
    return stored


def int8_rows(block: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantise f32 (N, K) to int8 (N, K) and one f32 scale per row (N,): w ~= q * scale.

    scale = max |w| / 127, so q is in -127..127 and |w - q * scale| <= scale / 2 up to rounding.
    A row of zeros has q = 0 and scale 1. Raises NotFiniteError for NaN and infinity.
    """
    _require_finite(block, block)
    largest = np.max(np.abs(block), axis=1, initial=0)
    zero = largest < _SMALLEST_ROW
    scale = np.where(zero, np.float32(1), largest / np.float32(INT8_MAX))
    quantized = np.rint(block / scale[:, np.newaxis]).astype(np.int8)
    return quantized, scale


def _require_finite(block: NDArray[np.float32], stored: NDArray[Any]) -> None:
    finite = np.isfinite(stored)
    if not finite.all():
        where = tuple(int(axis[0]) for axis in np.nonzero(~finite))
        raise NotFiniteError(f"the weight at {where} of the block is {block[where]}")
