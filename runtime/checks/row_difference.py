"""How far a row of a slot's caches is from the golden one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.bundle import CACHE_BITS, unpacked_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hearthd.bundle import GoldenRow
    from hearthd.runtime.interface import Rows

# The largest mean difference of a head in a cached row that passes, by the dtype of the caches, in
# steps: 1/127 of the largest magnitude of the head. Caches of i8 differed by 0.04, and a scale of
# 1/128 in them gives 0.5. Caches of f16 differed by 0.001, and activations with 16 bits in place of
# 8 give 0.14 to 0.32.
ROW_TOLERANCE: Mapping[str, float] = {"i4": 0.2, "i8": 0.2, "f16": 0.1}
# A step in units of a golden row's scales.
_STEP: Mapping[str, float] = {"i4": 1.0, "i8": 1.0, "f16": 32767 / 127}


def steps_between(golden: GoldenRow, saved: Rows) -> float:
    """The mean difference of the values of the head that differs most, in steps.

    All keys of a position count as one head where caches are of f16, and so do all values; where
    they are of 4 bits, each group of columns does.
    """
    scales = np.array(golden.scales)[:, np.newaxis]
    scales = np.where(scales == 0, 1.0, scales)  # a group of zeros in a cache of 4 bits
    expected = np.array(golden.integers, np.float64).reshape(len(scales), -1)
    differences = _cached_values(golden, saved) / scales - expected
    return largest_difference(
        np.abs(differences).mean(axis=1) / _STEP[golden.dtype], np.zeros(len(scales))
    )


def _cached_values(golden: GoldenRow, saved: Rows) -> NDArray[np.float64]:
    """The values of a golden row's caches in saved rows of its position, (scales, columns)."""
    heads, size = len(golden.scales), len(golden.integers)
    rest = saved[golden.offset :]
    if golden.dtype == "i4":
        key, value = (size // 2 * CACHE_BITS[dtype] // 8 for dtype in ("i6", "i4"))
        keys, packed, scales, _ = np.split(rest, np.cumsum([key, value, 2 * heads]))
        both = (unpacked_rows(part.view(np.int8), heads // 2) for part in (keys, packed))
        values = np.concatenate([*both]).astype(np.float64)
        return values * scales.view(np.float16)[:, np.newaxis]
    if golden.dtype == "f16":
        return rest[: 2 * size].view(np.float16).astype(np.float64).reshape(heads, -1)
    integers, scales = rest[:size].view(np.int8), rest[size : size + 4 * heads].view(np.float32)
    return integers.reshape(heads, -1) * scales.astype(np.float64)[:, np.newaxis]


def largest_difference(got: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference of two values; infinity if one is NaN."""
    difference = float(np.abs(got.astype(np.float64) - expected).max())
    return math.inf if math.isnan(difference) else difference
