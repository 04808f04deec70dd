"""From f32 rows to the types that a bundle stores. Knows no files and no tensor names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from models.dsl.grouped import GROUP, pack

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The largest value of a symmetric int8.
INT8_MAX = 127
# The largest magnitude of a Q5_0 integer.
_Q5_0_MAX = 16
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


def int8_groups(block: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Quantise f32 (N, K) to int8 with one f16 scale per 32 columns, for models/dsl/grouped.py.

    A group's scale is max |w| / 127, or max |w| / 16 if all its values are whole multiples of that:
    so what was stored as Q8_0 or Q5_0 keeps its integers, and what was not is rounded to nearest.
    Raises NotFiniteError for NaN, infinity and what is too large for an f16 scale.
    """
    _require_finite(block, block)
    groups = block.reshape(len(block), -1, GROUP)
    largest = np.max(np.abs(groups), axis=2)
    rounded, scale = _multiples(groups, largest / np.float32(INT8_MAX))
    coarse, coarse_scale = _multiples(groups, largest / np.float32(_Q5_0_MAX))
    with np.errstate(invalid="ignore"):  # an infinite scale: nothing is a multiple of it
        kept = (coarse * coarse_scale[..., np.newaxis] == groups).all(axis=2)
    scale = np.where(kept, coarse_scale, scale)
    _require_finite(largest, scale)
    integers = np.where(kept[..., np.newaxis], coarse, rounded).astype(np.int8)
    return pack(integers.reshape(block.shape), scale.astype(np.float16))


def _multiples(
    groups: NDArray[np.float32], scale: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Whole numbers (N, G, 32), and a scale (N, G) rounded to f16, whose products are near."""
    with np.errstate(over="ignore"):
        scale = scale.astype(np.float16).astype(np.float32)
    divisor = np.where(scale > 0, scale, np.float32(np.inf))[..., np.newaxis]
    return np.clip(np.rint(groups / divisor), -INT8_MAX, INT8_MAX), scale


def _require_finite(block: NDArray[np.float32], stored: NDArray[Any]) -> None:
    finite = np.isfinite(stored)
    if not finite.all():
        where = tuple(int(axis[0]) for axis in np.nonzero(~finite))
        raise NotFiniteError(f"the weight at {where} of the block is {block[where]}")
