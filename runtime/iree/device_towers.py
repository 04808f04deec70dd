"""The towers of a loaded bundle: from an image or a sound to its rows of embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.bundle import GridInput
from hearthd.runtime.iree.device import result, result_views
from hearthd.runtime.media.pixels import normalized, patches_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import iree.runtime as rt
    from numpy.typing import NDArray

    from hearthd.bundle import LanguageManifest
    from hearthd.runtime.interface import TowerKind
    from hearthd.runtime.iree.device import Device


class DeviceTowers:
    """The entry points for images and sound of a bundle; none if it reads neither."""

    def __init__(self, manifest: LanguageManifest, device: Device) -> None:
        self._settings, self._sound = manifest.image_settings, manifest.sound
        self._width, self._device = manifest.row_width, device
        self._slices = {
            (point.kind, point.tokens): [device.function(name) for name in point.functions]
            for point in manifest.entry_points
            if point.kind in ("image", "sound")
        }

    def sizes(self, kind: TowerKind) -> tuple[int, ...]:
        """The rows of embeddings of each entry point of a kind, rising."""
        return tuple(sorted(rows for point, rows in self._slices if point == kind))

    def read(self, media: NDArray[Any], size: int) -> Iterator[NDArray[np.float32] | None]:
        """See Runtime.read_media."""
        if media.ndim == 2:
            return self._read_sound(media, size)
        assert self._settings is not None, "a bundle that reads no images"
        if isinstance(self._settings, GridInput):
            return self._read_grid(media, self._settings, size)
        side, (rows,) = self._settings.side, self.sizes("image")
        assert media.shape == (side, side, 3), f"pixels {media.shape} of {side}"
        argument = self._device.upload(normalized(media, self._settings), "f32")
        return self._computed("image", [argument], rows, rows)

    def _read_sound(
        self, frames: NDArray[np.float32], size: int
    ) -> Iterator[NDArray[np.float32] | None]:
        assert self._sound is not None, "a bundle that reads no sound"
        rows = self._sound.rows(len(frames))
        fitting = self._fitting("sound", max(self._sound.reading_rows(len(frames)), size))
        padded = np.pad(frames, ((0, self._sound.length(fitting) - len(frames)), (0, 0)))
        arguments = [
            self._device.upload(padded, "f32"),
            self._device.upload(np.array([len(frames)], np.int32), "i32"),
        ]
        return self._computed("sound", arguments, fitting, rows)

    def _fitting(self, kind: TowerKind, rows: int) -> int:
        """The smallest entry point of a kind with at least `rows` rows."""
        sizes = [size for size in self.sizes(kind) if size >= rows]
        assert sizes, f"{kind} of {rows} rows, of {self.sizes(kind)}"
        return sizes[0]

    def _read_grid(
        self, pixels: NDArray[np.uint8], settings: GridInput, size: int
    ) -> Iterator[NDArray[np.float32] | None]:
        patches = patches_of(pixels, settings)
        rows = settings.rows_of(len(patches.values) // settings.merged**2)
        fitting = self._fitting("image", max(rows, size))
        values, places, grid = patches.padded(settings.patches_of(fitting))
        arguments = [
            self._device.upload(values, "f32"),
            *(self._device.upload(integers, "i32") for integers in (places, grid)),
        ]
        return self._computed("image", arguments, fitting, rows)

    def _computed(
        self, kind: TowerKind, values: list[rt.HalBufferView], size: int, rows: int
    ) -> Iterator[NDArray[np.float32] | None]:
        """The first rows of an entry point, computed slice after slice."""
        *slices, last = self._slices[kind, size]
        for function in slices:
            values = result_views(self._device.call(function, values, results=len(values)))
            yield None
        results = self._device.call(last, values, results=1)
        # A view would keep the rows of padding, too.
        yield result(results, 0, (size, self._width))[:rows].copy()
