"""The places for LoRA adapters on the device: which slot uses which, and their factors.

The factors of all places are one set of buffers, in pages of their own that take no memory until
the first adapter is written. They are arguments of each call that computes adapters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import iree.runtime as rt
    from numpy.typing import NDArray

    from hearthd.bundle import AdapterPlaces
    from hearthd.runtime.iree.device import Device

_NONE = (0, 0.0)


class DeviceAdapters:
    """The adapter places of one program; each slot uses at most one."""

    def __init__(self, device: Device, places: AdapterPlaces) -> None:
        self._device = device
        self._places = places
        self._chosen: dict[int, tuple[int, float]] = {}
        self._buffers: tuple[rt.HalBufferView, ...] = ()

    def choose(self, slot: int, place: int, scale: float) -> None:
        """See Runtime.set_adapter."""
        assert 0 <= place <= self._places.count, f"place {place}, of {self._places.count}"
        self._chosen.pop(slot, None)
        if place:
            self._chosen[slot] = (place, scale)

    def used_by(self, slots: Sequence[int]) -> bool:
        """Whether one of the slots has an adapter."""
        return any(slot in self._chosen for slot in slots)

    def arguments(self, slots: Sequence[int], *, unused: int) -> list[rt.HalBufferView]:
        """The arguments of a call for these slots, and for a number of rows without an adapter."""
        chosen = [self._chosen.get(slot, _NONE) for slot in slots] + [_NONE] * unused
        places = np.array([place for place, _ in chosen], np.int32)
        scales = np.array([scale for _, scale in chosen], np.float32)
        return [
            self._device.upload(places, "i32"),
            self._device.upload(scales, "f32"),
            *self._all(),
        ]

    def write(self, place: int, factors: Sequence[NDArray[Any]]) -> None:
        """See Runtime.write_adapter."""
        assert 1 <= place <= self._places.count, f"place {place}, of {self._places.count}"
        for array, view, values in zip(self._places.arrays, self._all(), factors, strict=True):
            view.map().asarray(array.shape, values.dtype)[place - 1] = values

    def _all(self) -> tuple[rt.HalBufferView, ...]:
        if not self._buffers:
            self._buffers = self._device.reserve_together(
                [(array.shape, array.dtype) for array in self._places.arrays]
            )
        return self._buffers
