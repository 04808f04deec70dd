"""Golden values of functions on arrays: golden.bin, whose format is array_bytes.py's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.bundle import GOLDEN, Corrupt
from runtime.array_bytes import from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from models.bundle import ArraysManifest
    from runtime.array_bytes import Arrays


@dataclass(frozen=True, kw_only=True)
class Example:
    """What a function gives for some inputs, as NumPy computed it."""

    function: str
    inputs: Arrays
    outputs: Arrays


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
