"""From an image to the parts that a tower with a fixed number of rows reads, as MiniCPM-V cuts it.

Source: image_processing_minicpmv.py of openbmb/MiniCPM-V-2_6, after "LLaVA-UHD" (Xu et al., 2024).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.server.images.grids import require_aspect
from hearthd.server.images.squares import Squares, array_of, parts_of, resized

if TYPE_CHECKING:
    from PIL import Image

    from hearthd.bundle import GridInput, ImageSlices


def sliced(image: Image.Image, settings: GridInput, field: str) -> Squares:
    """An RGB image as a whole, and then its slices; raises InvalidRequest as `grid_size`."""
    assert settings.slices is not None, "a tower whose rows depend on the size of an image"
    require_aspect(*image.size, field)
    overview = resized(image, part_size(*image.size, settings), settings.resampling)
    columns, rows = slice_layout(*image.size, settings.slices)
    if columns * rows == 1:
        return Squares((array_of(overview),))
    width, height = (
        max(1, round(pixels / count))
        for pixels, count in zip(image.size, (columns, rows), strict=True)
    )
    width, height = part_size(width, height, settings)
    enlarged = resized(image, (columns * width, rows * height), settings.resampling)
    return Squares((array_of(overview), *parts_of(enlarged, width, height)), rows, columns)


def slice_layout(width: int, height: int, slices: ImageSlices) -> tuple[int, int]:
    """The columns and rows of slices for an image; 1 and 1: it is not cut."""
    count = min(math.ceil(width * height / slices.side**2), slices.max_count)
    if count <= 1:
        return 1, 1
    counts = (near for near in (count - 1, count, count + 1) if 1 < near <= slices.max_count)
    layouts = [
        (columns, near // columns)
        for near in counts
        for columns in range(1, near + 1)
        if not near % columns
    ]
    aspect = math.log(width / height)
    return min(layouts, key=lambda layout: abs(aspect - math.log(layout[0] / layout[1])))


def part_size(width: int, height: int, settings: GridInput) -> tuple[int, int]:
    """The size of a part of an image with an aspect ratio: about the area of a square.

    Both sides are multiples of a patch, and the area is never above the largest one.
    """
    assert settings.slices is not None, "a tower whose rows depend on the size of an image"
    aspect, step = width / height, settings.step
    height = int(settings.slices.side / math.sqrt(aspect))
    columns, rows = (max(1, round(pixels / step)) for pixels in (int(height * aspect), height))
    most = settings.max_pixels // step**2
    if columns > rows:
        columns = min(columns, most // rows)
    else:
        rows = min(rows, most // columns)
    return columns * step, rows * step
