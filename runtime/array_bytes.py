"""Arrays as bytes, in golden.bin and in the body of a raw request.

The values are little-endian f32 or i32, row-major, one array after the other without padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.bundle import ArraySpec

Array: TypeAlias = "NDArray[Any]"
# By name; each of the shape and dtype in the manifest.
Arrays: TypeAlias = "Mapping[str, Array]"

_TYPES = {"f32": np.dtype("<f4"), "i32": np.dtype("<i4")}


def to_bytes(arrays: Iterable[NDArray[Any]]) -> bytes:
    """The arrays' bytes, in order."""
    return b"".join(
        np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for array in arrays
    )


def from_bytes(data: bytes, specs: Sequence[ArraySpec]) -> dict[str, NDArray[Any]]:
    """The arrays in `data`, by name; raises ValueError unless its length is exactly theirs."""
    size = sum(spec.bytes for spec in specs)
    if len(data) != size:
        raise ValueError(f"{size} bytes")
    arrays, start = {}, 0
    for spec in specs:
        dtype = _TYPES[spec.dtype]
        values = np.frombuffer(data, dtype, spec.bytes // dtype.itemsize, start)
        arrays[spec.name] = values.reshape(spec.shape).astype(dtype.newbyteorder("="), copy=False)
        start += spec.bytes
    return arrays
