"""Pixels as the entry points for images read them, and the golden image."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.bundle import GridInput, ImageInput


class Patches(NamedTuple):
    """The patches of an image, ordered by the square that gives a row of embeddings.

    values  normalized pixels, f32 (N, 3 * S * S): channel, row and column of a patch
    places  the row and the column of each patch, i32 (2, N)
    grid    rows and columns of patches, i32 (2,)
    """

    values: NDArray[np.float32]
    places: NDArray[np.int32]
    grid: NDArray[np.int32]

    def padded(self, count: int) -> Patches:
        """These patches and patches of zeros, `count` in total."""
        more = count - len(self.values)
        return Patches(
            np.pad(self.values, ((0, more), (0, 0))), np.pad(self.places, ((0, 0), (0, more))),
            self.grid,
        )  # fmt: skip


def normalized(pixels: NDArray[np.uint8], settings: ImageInput | GridInput) -> NDArray[np.float32]:
    """Pixels u8 (H, W, 3) as a model was trained with them, f32 (3, H, W)."""
    mean, std = (np.asarray(values, np.float32) for values in (settings.mean, settings.std))
    return np.ascontiguousarray(((pixels / np.float32(255) - mean) / std).transpose(2, 0, 1))


def patches_of(pixels: NDArray[np.uint8], settings: GridInput) -> Patches:
    """The patches of an image, u8 (H, W, 3) of sides that are multiples of `settings.step`."""
    height, width, channels = pixels.shape
    size, merged, step = settings.patch, settings.merged, settings.step
    shape = (height // step, merged, size, width // step, merged, size)
    squares = normalized(pixels, settings).reshape(channels, *shape)
    values = squares.transpose(1, 4, 2, 5, 0, 3, 6).reshape(-1, channels * size * size)
    grid = np.array([height // size, width // size], np.int32)
    places = np.indices((height // size, width // size), np.int32).reshape(
        2, shape[0], merged, shape[3], merged
    )
    return Patches(
        np.ascontiguousarray(values), places.transpose(0, 1, 3, 2, 4).reshape(2, -1), grid
    )


def golden_pixels(side: int) -> NDArray[np.uint8]:
    """A square of stripes that differ in every channel, u8 (side, side, 3)."""
    row, column, channel = np.ogrid[:side, :side, :3]
    return np.asarray((row * 5 + column * (3 + channel) + row * column // 7) % 256, np.uint8)
