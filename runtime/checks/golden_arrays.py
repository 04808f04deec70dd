"""Golden values of array functions: read and write golden.bin, in the format of array_bytes.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle import GOLDEN, Corrupt
from hearthd.runtime.array_bytes import from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hearthd.bundle import ArraysManifest
    from hearthd.runtime.array_bytes import Arrays


@dataclass(frozen=True, kw_only=True)
class GoldenExample:
    """Inputs of a function and its outputs, as computed by NumPy."""

    function: str
    inputs: Arrays
    outputs: Arrays


def write_examples(path: Path, examples: Iterable[GoldenExample]) -> None:
    """Write golden.bin; the examples have the order of the manifest's functions."""
    path.write_bytes(
        b"".join(to_bytes([*case.inputs.values(), *case.outputs.values()]) for case in examples)
    )


def read_examples(bundle: Path, manifest: ArraysManifest) -> tuple[GoldenExample, ...]:
    """The examples in a bundle, one per function; raises Corrupt."""
    data = (bundle / GOLDEN).read_bytes()
    examples, start = [], 0
    for function in manifest.functions:
        inputs_end = start + sum(spec.bytes for spec in function.inputs)
        end = inputs_end + sum(spec.bytes for spec in function.outputs)
        try:
            example = GoldenExample(
                function=function.name,
                inputs=from_bytes(data[start:inputs_end], function.inputs),
                outputs=from_bytes(data[inputs_end:end], function.outputs),
            )
        except ValueError as error:
            raise Corrupt(f"{bundle / GOLDEN}: truncated; bake the bundle again") from error
        examples.append(example)
        start = end
    return tuple(examples)
