"""The tower of a loaded bundle: from the pixels of an image to its rows of embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.bundle import GridInput
from hearthd.runtime.device import result, result_views
from hearthd.runtime.pixels import normalized, patches_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import iree.runtime as rt
    import numpy as np
    from numpy.typing import NDArray

    from hearthd.bundle import LanguageManifest
    from hearthd.runtime.device import Device


class DeviceImages:
    """The entry points for images of a bundle; none if it reads no images."""

    def __init__(self, manifest: LanguageManifest, device: Device) -> None:
        self._settings, self._hidden = manifest.image_settings, manifest.hidden
        self._device = device
        points = [point for point in manifest.entry_points if point.kind == "image"]
        self._slices = {
            point.tokens: [device.function(name) for name in point.functions] for point in points
        }

    @property
    def sizes(self) -> tuple[int, ...]:
        """The rows of embeddings of each entry point, rising."""
        return tuple(sorted(self._slices))

    def read(self, pixels: NDArray[np.uint8], size: int) -> Iterator[NDArray[np.float32] | None]:
        """See Runtime.read_image."""
        assert self._settings is not None, "a bundle that reads no images"
        if isinstance(self._settings, GridInput):
            return self._read_grid(pixels, self._settings, size)
        side, (rows,) = self._settings.side, self.sizes
        assert pixels.shape == (side, side, 3), f"pixels {pixels.shape} of {side}"
        argument = self._device.upload(normalized(pixels, self._settings), "f32")
        return self._computed([argument], rows, rows)

    def _read_grid(
        self, pixels: NDArray[np.uint8], settings: GridInput, size: int
    ) -> Iterator[NDArray[np.float32] | None]:
        patches, per_row = patches_of(pixels, settings), settings.merged**2
        rows = len(patches.values) // per_row
        fitting = [entry for entry in self.sizes if entry >= max(rows, size)]
        assert fitting, f"an image of {rows} rows, of {self.sizes}"
        values, places, grid = patches.padded(fitting[0] * per_row)
        arguments = [
            self._device.upload(values, "f32"),
            *(self._device.upload(integers, "i32") for integers in (places, grid)),
        ]
        return self._computed(arguments, fitting[0], rows)

    def _computed(
        self, values: list[rt.HalBufferView], size: int, rows: int
    ) -> Iterator[NDArray[np.float32] | None]:
        """The first rows of an entry point, computed slice after slice."""
        *slices, last = self._slices[size]
        for function in slices:
            values = result_views(self._device.call(function, values, results=len(values)))
            yield None
        results = self._device.call(last, values, results=1)
        yield result(results, 0, (size, self._hidden))[:rows]
