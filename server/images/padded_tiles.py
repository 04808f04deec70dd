"""From an image to the tiles and the order of rows that LLaVA-NeXT reads.

Source: transformers, models/llava_next/image_processing_pil_llava_next.py, `select_best_resolution`
in image_processing_utils.py, and `pack_image_features` in models/llava_next/modeling_llava_next.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

from hearthd.server.images.grids import require_aspect
from hearthd.server.images.squares import Squares, array_of, parts_of, resized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.bundle import ImageInput


class Run(NamedTuple):
    """Consecutive rows of embeddings of a square, by its number: from `start`, before `end`."""

    square: int
    start: int
    end: int


def padded_tiles(image: Image.Image, settings: ImageInput, field: str) -> Squares:
    """An RGB image as one square, and then its tiles; raises InvalidRequest as `grid_size`."""
    require_aspect(*image.size, field)
    side, filter_ = settings.side, settings.resampling
    columns, rows = _layout(*image.size, settings)
    width, height = columns * side, rows * side
    across, down = width / image.width, height / image.height
    if across < down:
        size = width, min(math.ceil(image.height * across), height)
    else:
        size = min(math.ceil(image.width * down), width), height
    padded = Image.new("RGB", (width, height))
    padded.paste(resized(image, size, filter_), ((width - size[0]) // 2, (height - size[1]) // 2))
    square = array_of(resized(image, (side, side), filter_))
    return Squares((square, *parts_of(padded, side, side)), rows, columns)


def runs(width: int, height: int, squares: Squares, settings: ImageInput) -> Iterator[Run]:
    """The rows of an image of a size: of its square, and then line by line of its tiles."""
    side = settings.line_rows
    yield Run(0, 0, side**2)
    columns, rows = squares.columns * side, squares.rows * side
    top = margin = 0
    # In the order of the original's operations, and rounded as there.
    if width / height > columns / rows:
        top = (rows - int(round(height * (columns / width), 7))) // 2
    else:
        margin = (columns - int(round(width * (rows / height), 7))) // 2
    for y in range(top, rows - top):
        for tile in range(squares.columns):
            start, end = max(margin, tile * side), min(columns - margin, (tile + 1) * side)
            if start < end:
                number = 1 + y // side * squares.columns + tile
                line = (y % side - tile) * side
                yield Run(number, line + start, line + end)
        yield Run(0, side**2, side**2 + 1)


def _layout(width: int, height: int, settings: ImageInput) -> tuple[int, int]:
    """The columns and rows of tiles for an image."""
    assert settings.padded is not None, "a model that cuts no images so"

    def kept(layout: tuple[int, int]) -> tuple[int, int]:
        columns, rows = (count * settings.side for count in layout)
        scale = min(columns / width, rows / height)
        pixels = min(int(width * scale) * int(height * scale), width * height)
        return pixels, pixels - columns * rows

    return max(settings.padded.layouts, key=kept)
