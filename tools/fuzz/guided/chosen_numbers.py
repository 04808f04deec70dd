"""Numbers that bytes of a fuzzer choose."""

from __future__ import annotations

from typing import Any


class Numbers:
    """Numbers from bytes; the smallest ones when no byte is left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def between(self, low: int, high: int) -> int:
        """A number from `low` to `high`."""
        count = max(1, (high - low).bit_length() + 7 >> 3)
        part = self._data[self._at : self._at + count]
        self._at += count
        return low + int.from_bytes(part, "little") % (high - low + 1)

    def one_of(self, *choices: Any) -> Any:
        """One of the choices."""
        return choices[self.between(0, len(choices) - 1)]
