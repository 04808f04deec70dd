"""Golden values of functions on arrays, and arrays as raw bytes.

The one place that knows how an array lies in golden.bin and in the body of a raw request: its
values as little-endian f32, row-major, one array after the other with nothing between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models.bundle import GOLDEN, Corrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from models.bundle import ArraysManifest, ArraySpec
    from runtime.array_functions import Arrays

_F32 = np.dtype("<f4")


@dataclass(frozen=True, kw_only=True)
class Example:
    """What a function gives for some inputs, as NumPy computed it."""

    function: str
    inputs: Arrays
    outputs: Arrays


def to_bytes(arrays: Iterable[NDArray[np.float32]]) -> bytes:
    """Arrays, one after the other."""
    return b"".join(np.ascontiguousarray(array, _F32).tobytes() for array in arrays)


def from_bytes(data: bytes, specs: Sequence[ArraySpec]) -> dict[str, NDArray[np.float32]]:
    """The arrays that lie one after the other; raises ValueError unless the length is theirs."""
    wanted = sum(spec.bytes for spec in specs)
    if len(data) != wanted:
        raise ValueError(f"{wanted} bytes")
    found, start = {}, 0
    for spec in specs:
        values = np.frombuffer(data, _F32, spec.bytes // _F32.itemsize, start)
        found[spec.name] = values.reshape(spec.shape).astype(np.float32, copy=False)
        start += spec.bytes
    return found


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Write golden.bin; the examples are in the order of the manifest's functions."""
    path.write_bytes(
        b"".join(to_bytes([*case.inputs.values(), *case.outputs.values()]) for case in examples)
    )


def read_examples(bundle: Path, manifest: ArraysManifest) -> tuple[Example, ...]:
    """The examples in a bundle, one of each function; raises Corrupt."""
    data = (bundle / GOLDEN).read_bytes()
    examples, start = [], 0
    for function in manifest.functions:
        inputs_end = start + sum(spec.bytes for spec in function.inputs)
        end = inputs_end + sum(spec.bytes for spec in function.outputs)
        try:
            example = Example(
                function=function.name,
                inputs=from_bytes(data[start:inputs_end], function.inputs),
                outputs=from_bytes(data[inputs_end:end], function.outputs),
            )
        except ValueError as error:
            raise Corrupt(f"{bundle / GOLDEN} ends too soon: bake the bundle again") from error
        examples.append(example)
        start = end
    return tuple(examples)
