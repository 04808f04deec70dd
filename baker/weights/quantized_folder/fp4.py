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
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hearthd.baker.weights.quantized_folder.quantized_matrix import ReadRows, StoredParts

_MAX = 12
TWICE_E2M1 = np.array((0, 1, 2, 3, 4, 6, 8, _MAX, 0, -1, -2, -3, -4, -6, -8, -_MAX), np.int8)
# The bias of an exponent that is a scale (E8M0).
_BIAS = 127
_SCALE = "weight_scale"


def float4(parts: StoredParts) -> QuantizedMatrix:
    """The matrix in `weight_packed` u8 (N, K / 2); `weight_global_scale` divides scales of NVFP4.

    Raises BadFile for tensors that do not fit.
    """
    packed, divisor = "weight_packed", "weight_global_scale"
    if not parts.has(divisor):
        return _mxfp4(parts, packed)
    parts.require(divisor, (1,), "f32")

    def half_of_scale() -> NDArray[np.float32]:
        with np.errstate(divide="ignore", invalid="ignore"):  # what is not finite is refused later
            scale = parts.read(_SCALE).astype(np.float32)
            return np.asarray(scale / (2 * parts.read(divisor)))

    return nvfp4(parts, packed, half_of_scale)


def nvfp4(
    parts: StoredParts, packed: str, half_of_scale: Callable[[], NDArray[np.float32]]
) -> QuantizedMatrix:
    """The NVFP4 matrix in a tensor u8 (N, K / 2): the first of two columns in the low bits.

    `half_of_scale` reads half of the scales, f32 (N, K / 16). Raises BadFile for tensors that do
    not fit.
    """
    rows, stored_bytes = parts.shape(packed, "U8", axes=2)
    parts.require(_SCALE, (rows, 2 * stored_bytes // 16), "F8_E4M3")
    storage = integer_storage(-_MAX, _MAX, 16)
    return _matrix(parts, packed, "NVFP4", storage, half_of_scale)


def _mxfp4(parts: StoredParts, packed: str) -> QuantizedMatrix:
    rows, stored_bytes = parts.shape(packed, "U8", axes=2)
    parts.require(_SCALE, (rows, 2 * stored_bytes // 32), "U8")
    return _matrix(parts, packed, "MXFP4", MXFP4.name, lambda: half_of_power(parts.read(_SCALE)))


def _matrix(
    parts: StoredParts,
    packed: str,
    name: str,
    storage: str | None,
    half_of_scale: Callable[[], NDArray[np.float32]],
) -> QuantizedMatrix:
    rows, stored_bytes = parts.shape(packed, "U8", axes=2)

    def open_rows() -> ReadRows:
        numbers, scale = parts.read(packed), half_of_scale()

        def read_rows(some: slice) -> ScaledRows:
            return ScaledRows(numbers=TWICE_E2M1[unpack(numbers[some], 4)], scale=scale[some])

        return read_rows

    return QuantizedMatrix(
        parts=parts,
        type=f"{parts.method} {name}",
        shape=(rows, 2 * stored_bytes),
        storage=storage,
        open=open_rows,
    )


def half_of_power(exponents: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Half of the scales that are stored as exponents of two (E8M0)."""
    return np.ldexp(np.float32(0.5), exponents.astype(np.int32) - _BIAS)
