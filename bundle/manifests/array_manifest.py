"""The manifest of an array program: array functions such as a GRU's `run` and `step`.

Besides model.vmfb and params.irpa its bundle holds

    golden.bin    an example of each function, in the manifest's order: its inputs, then its
                  outputs, as little-endian arrays in row-major order without gaps

A compiled function has its inputs and outputs in the manifest's order. An output that `takes` an
input is written into that input's buffer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hearthd.bundle.manifests.manifest import Manifest
from hearthd.bundle.memory_sum import REQUEST_MEMORY

__all__ = [
    "GOLDEN",
    "ArraySpec",
    "ArraysManifest",
    "FunctionSpec",
    "InputSpec",
    "OutputSpec",
]

GOLDEN = "golden.bin"

# Of a request in JSON, with its answer, as server/api/middleware/body_limits.py estimates it.
_MEMORY_PER_VALUE = 256
_MEMORY_PER_BYTE = 18


@dataclass(frozen=True, kw_only=True)
class ArraySpec:
    """An input or output: its name, fixed shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: Literal["f32", "i32"]

    @property
    def bytes(self) -> int:
        """The size of the array in bytes."""
        return 4 * math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class InputSpec(ArraySpec):
    """An input. It may be omitted if its default is zeros, as the default of a state is."""

    default: Literal["none", "zeros"]


@dataclass(frozen=True, kw_only=True)
class OutputSpec(ArraySpec):
    """An output; `takes` names the input whose buffer it is written into, if there is one."""

    takes: str | None


@dataclass(frozen=True, kw_only=True)
class FunctionSpec:
    """A compiled function."""

    name: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]

    @property
    def values(self) -> int:
        """The number of values in all inputs and outputs."""
        return sum(spec.bytes // 4 for spec in (*self.inputs, *self.outputs))


@dataclass(frozen=True, kw_only=True)
class ArraysManifest(Manifest):
    """The manifest of an array program."""

    kind: Literal["arrays", "encoder", "speech"] = "arrays"
    functions: tuple[FunctionSpec, ...]

    def added_request_memory(self, max_body_bytes: int) -> int:
        """Bytes that requests take beyond REQUEST_MEMORY, so that one of the largest calls fits."""
        largest = max((function.values for function in self.functions), default=0)
        call_memory = min(_MEMORY_PER_VALUE * largest, _MEMORY_PER_BYTE * max_body_bytes)
        return max(0, call_memory - REQUEST_MEMORY)
