"""Parse a safetensors file of floats without the library, which a server does not install."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hearthd.bundle.parsing import strict_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_MAX_AXES = 8
LENGTH_BYTES = 8  # of the length in front of the header


def parse(data: bytes) -> tuple[dict[str, tuple[str, tuple[int, ...], int]], memoryview]:
    """Type, shape and offset of each tensor, and the bytes that offsets count in.

    Raises ValueError, KeyError or TypeError for a file that is not complete.
    """
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    start = LENGTH_BYTES + length
    if len(data) < LENGTH_BYTES or start > len(data):
        raise ValueError(f"it ends within its header of {length} bytes")
    header = strict_json.parse(data[LENGTH_BYTES:start].decode())
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    entries, ends = {}, []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        stored, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if stored not in BYTES:
            raise ValueError(f"tensor {name:.200} is {stored!r:.20}, expected {', '.join(BYTES)}")
        if len(shape) > _MAX_AXES:  # the product of many sizes takes minutes
            raise ValueError(
                f"tensor {name:.200} has {len(shape)} axes, expected at most {_MAX_AXES}"
            )
        begin, end = (_size(offset) for offset in offsets)
        extents = tuple(map(_size, shape))
        if end - begin != math.prod(extents) * BYTES[stored]:
            raise ValueError(f"tensor {name:.200} has {end - begin} bytes for its shape {extents}")
        entries[name] = (stored, extents, begin)
        ends.append((begin, end))
    ends.sort()
    edges = [0, *(end for _, end in ends)]
    if [begin for begin, _ in ends] != edges[:-1] or edges[-1] != len(data) - start:
        raise ValueError(f"its tensors end at {edges[-1]} of {len(data) - start} bytes")
    return entries, memoryview(data)[start:]


def _size(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"got {value!r:.40} in its header, expected a size")
    return value


def floats(raw: memoryview, stored: str) -> NDArray[np.float32]:
    """The values of bytes in F32, F16 or BF16, little-endian."""
    if stored == "F32":
        return np.frombuffer(raw, "<f4")
    if stored == "F16":
        return np.frombuffer(raw, "<f2").astype(np.float32)
    # bf16 is the upper half of f32.
    return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
