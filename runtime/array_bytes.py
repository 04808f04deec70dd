"""Arrays as bytes, in golden.bin and in the body of a raw request.

The values are little-endian f32, row-major, one array after the other without padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from models.bundle import ArraySpec

# By name; f32, each of the shape in the manifest.
Arrays: TypeAlias = "Mapping[str, NDArray[np.float32]]"

_F32 = np.dtype("<f4")


def to_bytes(arrays: Iterable[NDArray[np.float32]]) -> bytes:
    """The arrays' bytes, in order."""
    return b"".join(np.ascontiguousarray(array, _F32).tobytes() for array in arrays)


def from_bytes(data: bytes, specs: Sequence[ArraySpec]) -> dict[str, NDArray[np.float32]]:
    """The arrays in `data`, by name; raises ValueError unless its length is exactly theirs."""
    size = sum(spec.bytes for spec in specs)
    if len(data) != size:
        raise ValueError(f"{size} bytes")
    arrays, start = {}, 0
    for spec in specs:
        values = np.frombuffer(data, _F32, spec.bytes // _F32.itemsize, start)
        arrays[spec.name] = values.reshape(spec.shape).astype(np.float32, copy=False)
        start += spec.bytes
    return arrays
