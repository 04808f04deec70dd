"""From an image to the squares that a tower reads, as transformers' processors make them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from hearthd.bundle import ImageInput, ImageTiles, Resampling

_FILTERS: Mapping[Resampling, Image.Resampling] = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}

_MIN_SHARE = 0.5  # of the pixels of a layout of tiles: a smaller image takes the one with fewer


@dataclass(frozen=True)
class Squares:
    """What a tower reads of an image, u8 (H, W, 3) each: all of it, and the parts it was cut into.

    There are `rows` and `columns` of these parts, 0 and 0 if it was not cut. The whole image is the
    last one, or the first one where slices.py cuts.
    """

    pixels: tuple[NDArray[np.uint8], ...]
    rows: int = 0
    columns: int = 0


def squares(image: Image.Image, settings: ImageInput) -> Squares:
    """The squares of an RGB image."""
    side, filter_ = settings.side, settings.resampling
    if settings.tiles is not None:
        columns, rows = layout(*image.size, settings.tiles)
        square = resized(image, (side, side), filter_)
        if columns * rows == 1:
            return Squares((array_of(square),))
        return cut(resized(image, (columns * side, rows * side), filter_), side, square)
    if settings.longest_edge is None:
        return Squares((array_of(resized(_fitted(image, settings), (side, side), filter_)),))
    image = resized(image, _with_longest_edge(*image.size, settings.longest_edge), filter_)
    image = resized(image, _multiples(*image.size, side), filter_)
    if image.size == (side, side):
        return Squares((array_of(image),))
    return cut(image, side, resized(image, (side, side), filter_))


def _fitted(image: Image.Image, settings: ImageInput) -> Image.Image:
    """An image as a square of any size, unless it is stretched."""
    width, height = image.size
    if settings.fit == "crop":
        side, shorter = settings.side, min(width, height)
        width, height = (side * x // shorter for x in image.size)
        image = resized(image, (width, height), settings.resampling)
        x, y = (width - side) // 2, (height - side) // 2
        return image.crop((x, y, x + side, y + side))
    if settings.fit == "pad":
        side = max(width, height)
        red, green, blue = (int(mean * 255) for mean in settings.mean)
        square = Image.new("RGB", (side, side), (red, green, blue))
        square.paste(image, ((side - width) // 2, (side - height) // 2))
        return square
    return image


def layout(width: int, height: int, tiles: ImageTiles) -> tuple[int, int]:
    """The columns and rows of tiles for an image."""
    aspect, best, least = width / height, (1, 1), math.inf
    for columns, rows in tiles.layouts:
        difference = abs(aspect - columns / rows)
        is_large = width * height > _MIN_SHARE * columns * rows * tiles.side**2
        if difference < least or (difference == least and is_large):
            best, least = (columns, rows), difference
    return best


def cut(image: Image.Image, side: int, thumbnail: Image.Image) -> Squares:
    """The squares of an image whose sides are multiples of `side`, and the image as a whole."""
    columns, rows = image.width // side, image.height // side
    return Squares((*parts_of(image, side, side), array_of(thumbnail)), rows, columns)


def parts_of(image: Image.Image, width: int, height: int) -> Iterator[NDArray[np.uint8]]:
    """The pixels of parts of a size, of an image whose sides are multiples of it, row by row."""
    for y in range(0, image.height, height):
        for x in range(0, image.width, width):
            yield array_of(image.crop((x, y, x + width, y + height)))


def resized(image: Image.Image, size: tuple[int, int], resampling: Resampling) -> Image.Image:
    """The image in another size."""
    return image if image.size == size else image.resize(size, _FILTERS[resampling])


def array_of(image: Image.Image) -> NDArray[np.uint8]:
    """The pixels of an RGB image, u8 (H, W, 3)."""
    return np.asarray(image, np.uint8)


def _with_longest_edge(width: int, height: int, edge: int) -> tuple[int, int]:
    """Width and height with the longer one `edge`, and the other one even."""
    aspect = width / height
    if width >= height:
        shorter = int(edge / aspect)
        return edge, max(1, shorter + shorter % 2)
    shorter = int(edge * aspect)
    return max(1, shorter + shorter % 2), edge


def _multiples(width: int, height: int, side: int) -> tuple[int, int]:
    """Width and height as multiples of `side`: the longer one is enlarged first."""
    aspect = width / height
    if width >= height:
        width = math.ceil(width / side) * side
        return width, max(1, math.ceil(int(width / aspect) / side)) * side
    height = math.ceil(height / side) * side
    return max(1, math.ceil(int(height * aspect) / side)) * side, height
