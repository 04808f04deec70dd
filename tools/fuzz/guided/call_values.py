"""Calls of C kernels, and arrays of values for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tools.fuzz.guided.chosen_numbers import Numbers

    Array = NDArray[Any]


@dataclass
class Call:
    """An op with its inputs; inputs in `rows` have the rows of the result on their first axis."""

    op: str
    inputs: list[Array]
    attrs: dict[str, Any] = field(default_factory=dict)
    rows: tuple[int, ...] = ()


class Values:
    """Arrays of values of all kinds, small and large ones too."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._rng = np.random.default_rng(numbers.between(0, 2**16 - 1))

    def floats(self, *shape: int) -> Array:
        values = self._rng.normal(size=shape).astype(np.float32)
        with np.errstate(over="ignore"):
            values *= np.float32(self._numbers.one_of(1, 0, 1e-38, 1e-45, 1e30, 3e38, -1e10))
        for _ in range(self._numbers.between(0, 3)):
            at = self._rng.integers(values.size)
            values.reshape(-1)[at] = self._numbers.one_of(
                0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-45, 127.5
            )
        return values

    def bits(self, dtype: Any, *shape: int) -> Array:
        """Any bits: of floats, also those that are not numbers."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self._numbers.between(0, 7) == 0:
            byte = self._numbers.between(0, 255)
            values: Array = np.full(size, byte, np.uint8)
        else:
            values = self._rng.integers(0, 256, size, np.uint8)
        shaped: Array = values.view(dtype).reshape(shape)
        return shaped

    def integers(self, low: int, high: int, count: int) -> Array:
        return self._rng.integers(low, high + 1, count, dtype=np.int64).astype(np.int32)
