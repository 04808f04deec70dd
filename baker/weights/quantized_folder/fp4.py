"""FP4 (E2M1): a weight is a float of 4 bits times the scale of 16 columns (NVFP4) or 32 (MXFP4).

Twice a float of 4 bits is an integer from -12 to 12, so integers and half of the scale are kept:
the integers themselves of NVFP4, their numbers and powers of two of MXFP4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.weights.quantized_folder.quantized_matrix import (
    QuantizedMatrix,
    ScaledRows,
    integer_storage,
    unpack,
)
from hearthd.models.dsl.matrix_format import MXFP4

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.baker.weights.quantized_folder.quantized_matrix import ReadRows, StoredParts

_MAX = 12
TWICE_E2M1 = np.array((0, 1, 2, 3, 4, 6, 8, _MAX, 0, -1, -2, -3, -4, -6, -8, -_MAX), np.int8)
# The bias of an exponent that is a scale (E8M0).
_BIAS = 127
_PACKED, _SCALE, _GLOBAL = "weight_packed", "weight_scale", "weight_global_scale"


def float4(parts: StoredParts) -> QuantizedMatrix:
    """The matrix in `weight_packed` u8 (N, K / 2): the first of two columns in the low bits.

    Raises BadFile for tensors that do not fit.
    """
    rows, stored_bytes = parts.shape(_PACKED, "U8", axes=2)
    columns, is_nv = 2 * stored_bytes, parts.has(_GLOBAL)
    group, name = (16, "NVFP4") if is_nv else (32, "MXFP4")
    parts.require(_SCALE, (rows, columns // group), "F8_E4M3" if is_nv else "U8")
    if is_nv:
        parts.require(_GLOBAL, (1,), "f32")

    def open_rows() -> ReadRows:
        packed = parts.read(_PACKED)
        scale = _half_of_scale(parts, is_nv)

        def read_rows(some: slice) -> ScaledRows:
            return ScaledRows(numbers=TWICE_E2M1[unpack(packed[some], 4)], scale=scale[some])

        return read_rows

    return QuantizedMatrix(
        parts=parts,
        type=f"{parts.method} {name}",
        shape=(rows, columns),
        storage=integer_storage(-_MAX, _MAX, group) if is_nv else MXFP4.name,
        open=open_rows,
    )


def _half_of_scale(parts: StoredParts, is_nv: bool) -> NDArray[np.float32]:
    """f32 (N, K / group)."""
    stored = parts.read(_SCALE)
    if is_nv:
        with np.errstate(divide="ignore", invalid="ignore"):  # what is not finite is refused later
            return np.asarray(stored.astype(np.float32) / (2 * parts.read(_GLOBAL)))
    return half_of_power(stored)


def half_of_power(exponents: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Half of the scales that are stored as exponents of two (E8M0)."""
    return np.ldexp(np.float32(0.5), exponents.astype(np.int32) - _BIAS)
