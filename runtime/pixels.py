"""Pixels as the entry point for images reads them, and those of the golden image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.bundle import ImageInput


def normalized(pixels: NDArray[np.uint8], settings: ImageInput) -> NDArray[np.float32]:
    """Pixels u8 (S, S, 3) as a model was trained with them, f32 (3, S, S)."""
    mean, std = (np.asarray(values, np.float32) for values in (settings.mean, settings.std))
    return np.ascontiguousarray(((pixels / np.float32(255) - mean) / std).transpose(2, 0, 1))


def golden_pixels(side: int) -> NDArray[np.uint8]:
    """A square of stripes that differ in every channel, u8 (side, side, 3)."""
    row, column, channel = np.ogrid[:side, :side, :3]
    return np.asarray((row * 5 + column * (3 + channel) + row * column // 7) % 256, np.uint8)
