"""From f32 rows to the types that a bundle stores. Knows no files and no tensor names."""

from __future__ import annotations

from dataclasses import dataclass
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
# Rows that are tried before a search for better scales, and the part of the squared error that may
# be left for it to be worth its time: of values that had no lattice 0.8 is left, of Q6_K's 0.6.
_SAMPLE = 16
_WORTH = 0.7
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

    What was stored as Q8_0 or Q5_0 keeps its integers. The scale of another group is max |w| / 127,
    or the best of max |w| / 127, ... / 64 where that is much better: values that had 4 or 6 bits
    lie nearly on the multiples of one of them. Raises NotFiniteError for NaN, infinity and what is
    too large for an f16 scale.
    """
    _require_finite(block, block)
    groups = block.reshape(len(block), -1, GROUP)
    kept = _multiples(groups, _Q5_0_MAX)
    rounded = _multiples(groups, INT8_MAX)
    if (np.minimum(kept.error, rounded.error) > 0).any():
        rounded = _best_multiples(groups, rounded)
    exact = kept.error == 0
    scale = np.where(exact, kept.scale, rounded.scale)
    _require_finite(np.max(np.abs(groups), axis=2), scale)
    integers = np.where(exact[..., np.newaxis], kept.integers, rounded.integers).astype(np.int8)
    return pack(integers.reshape(block.shape), scale.astype(np.float16))


@dataclass(frozen=True)
class _Multiples:
    """Groups (N, G, 32) as whole numbers times a scale (N, G), and the sums of squares missed."""

    integers: NDArray[np.float32]
    scale: NDArray[np.float32]
    error: NDArray[np.float32]


def _multiples(groups: NDArray[np.float32], steps: int) -> _Multiples:
    """With so many steps from 0 to a group's largest magnitude; the scale is rounded to f16."""
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite scale has no finite error
        scale = np.max(np.abs(groups), axis=2) / np.float32(steps)
        scale = scale.astype(np.float16).astype(np.float32)
        divisor = np.where(scale > 0, scale, np.float32(np.inf))[..., np.newaxis]
        integers = np.clip(np.rint(groups / divisor), -INT8_MAX, INT8_MAX)
        error = ((integers * scale[..., np.newaxis] - groups) ** 2).sum(axis=2)
    return _Multiples(integers, scale, error)


def _best_multiples(groups: NDArray[np.float32], plain: _Multiples) -> _Multiples:
    """The best number of steps of each group, if the first rows show that the search pays."""
    few = groups[:_SAMPLE]
    tried = _searched(few, _multiples(few, INT8_MAX))
    if tried.error.sum() > _WORTH * plain.error[:_SAMPLE].sum():
        return plain
    return _searched(groups, plain)


def _searched(groups: NDArray[np.float32], best: _Multiples) -> _Multiples:
    for steps in range(INT8_MAX - 1, INT8_MAX // 2, -1):
        other = _multiples(groups, steps)
        better = other.error < best.error
        best = _Multiples(
            np.where(better[..., np.newaxis], other.integers, best.integers),
            np.where(better, other.scale, best.scale),
            np.where(better, other.error, best.error),
        )
    return best


def _require_finite(block: NDArray[np.float32], stored: NDArray[Any]) -> None:
    finite = np.isfinite(stored)
    if not finite.all():
        where = tuple(int(axis[0]) for axis in np.nonzero(~finite))
        raise NotFiniteError(f"the weight at {where} of the block is {block[where]}")
