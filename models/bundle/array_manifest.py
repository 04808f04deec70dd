"""The manifest of a program of functions on arrays, such as a GRU's `run` and `step`.

Besides model.vmfb and params.irpa its bundle holds

    golden.bin    of each function, in the manifest's order, an example: its inputs and then its
                  outputs, one after the other as little-endian arrays, row-major

A compiled function takes its inputs and gives its outputs in the manifest's order. An output that
`takes` an input lies in that input's buffer, whose old values are gone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from models.bundle.manifest import Manifest

__all__ = [
    "GOLDEN",
    "ArraySpec",
    "ArraysManifest",
    "FunctionSpec",
    "InputSpec",
    "OutputSpec",
]

GOLDEN = "golden.bin"


@dataclass(frozen=True, kw_only=True)
class ArraySpec:
    """An array that goes in or comes out: its name, fixed shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: Literal["f32"]

    @property
    def bytes(self) -> int:
        """The size of the array."""
        return 4 * math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class InputSpec(ArraySpec):
    """An array that goes in. One whose default is zeros, a state, may be left out."""

    default: Literal["none", "zeros"]


@dataclass(frozen=True, kw_only=True)
class OutputSpec(ArraySpec):
    """An array that comes out; `takes` names the input whose storage it takes, if it does."""

    takes: str | None


@dataclass(frozen=True, kw_only=True)
class FunctionSpec:
    """A compiled function."""

    name: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]


@dataclass(frozen=True, kw_only=True)
class ArraysManifest(Manifest):
    """What the server must know of a program of functions on arrays."""

    kind: Literal["arrays"] = "arrays"
    functions: tuple[FunctionSpec, ...]
