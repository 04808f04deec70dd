"""The rotary positions of slots, which differ from the positions after an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hearthd.bundle import EntryPoint

_AXES = 3
_ONLY_TOKENS = np.zeros((_AXES, 0), np.int32), 0


class RotaryPositions:
    """By slot, the rotary positions by each axis, i32 (axes, n), of the first n positions.

    Later positions continue after the largest of them. Without `has_axes`, rotary positions equal
    positions, and entry points have no such arguments.
    """

    def __init__(self, *, has_axes: bool) -> None:
        self._has_axes = has_axes
        # By slot: the rotary positions, and the first one after them.
        self._slots: dict[int, tuple[NDArray[np.int32], int]] = {}

    def set(self, slot: int, positions: NDArray[np.int32] | None) -> None:
        """See Runtime.set_rotary_positions."""
        assert positions is None or self._has_axes, "positions of a model without axes"
        self._slots.pop(slot, None)
        if positions is not None:
            self._slots[slot] = positions, int(positions.max(initial=-1)) + 1

    def shifts(
        self, slots: Sequence[int], positions: Sequence[int], *, tokens: int = 1, unused: int = 0
    ) -> list[NDArray[np.int32]]:
        """The argument `shifts`, i32 (B,): rotary position minus position of each slot's tokens.

        For `tokens` tokens from each of `positions` on. `unused` rows of the batch follow.
        """
        if not self._has_axes:
            return []
        shifts = [0] * (len(slots) + unused)
        for i, (slot, start) in enumerate(zip(slots, positions, strict=True)):
            part = self._part(slot, start, tokens)
            shifts[i] = int(part[0, 0]) - start
            assert (part - np.arange(start, start + tokens) == shifts[i]).all(), "not only tokens"
        return [np.array(shifts, np.int32)]

    def of_prefill(
        self, slot: int, start: int, tokens: int, entry: EntryPoint
    ) -> list[NDArray[np.int32]]:
        """The argument of a prefill of some tokens, or of rows among them."""
        if entry.kind == "prefill":
            return self.shifts((slot,), (start,), tokens=tokens)
        return self.of_rows(slot, start, entry.tokens)

    def of_rows(self, slot: int, start: int, count: int) -> list[NDArray[np.int32]]:
        """The positions by each axis from `start` on, i32 (axes, count), as an argument."""
        return [self._part(slot, start, count)] if self._has_axes else []

    def _part(self, slot: int, start: int, count: int) -> NDArray[np.int32]:
        known, following = self._slots.get(slot, _ONLY_TOKENS)
        first, end = known.shape[1], start + count
        later = np.arange(max(start, first), end, dtype=np.int32) + (following - first)
        return np.concatenate([known[:, start:end], np.tile(later, (_AXES, 1))], axis=1)
