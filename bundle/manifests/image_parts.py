"""How images are cut into tiles or slices, each of which a tower reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ImageSlices", "ImageTiles", "PaddedTiles"]

MAX_SIDE = 4096
MAX_PIXELS = 2**31 - 1
MAX_TILES = 64


@dataclass(frozen=True, kw_only=True)
class ImageTiles:
    """How an image of a large area is cut into square tiles, which precede all of it.

    The image is resized to the rows and columns of tiles whose aspect ratio is nearest to its own.

    side       pixels of a side of a tile
    min_count  the fewest tiles
    max_count  the most tiles
    min_pixels  an image is cut if its area, at sides that fit, is larger
    start      special token before the rows of a tile: {row} and {column} are its numbers, from 1
    thumbnail  special token before the rows of the whole image after its tiles
    """

    side: int
    min_count: int
    max_count: int
    min_pixels: int
    start: str
    thumbnail: str

    def __post_init__(self) -> None:
        """Raises NotABundle for numbers out of range."""
        limits = {
            "side": (self.side, 1, MAX_SIDE),
            "max_count": (self.max_count, 2, MAX_TILES),
            "min_count": (self.min_count, 1, self.max_count),
            "min_pixels": (self.min_pixels, 1, MAX_PIXELS),
        }
        require_within(limits, "images.tiles")

    @property
    def layouts(self) -> tuple[tuple[int, int], ...]:
        """The columns and rows of tiles that an image can be cut into, by their number."""
        sides = range(1, self.max_count + 1)
        pairs = [(columns, rows) for columns in sides for rows in sides]
        allowed = [pair for pair in pairs if self.min_count <= math.prod(pair) <= self.max_count]
        return tuple(sorted(allowed, key=math.prod))

    def text(self, row: int, column: int) -> str:
        """The special token of the tile in a row and a column, from 0."""
        return numbered(self.start, row, column)


@dataclass(frozen=True, kw_only=True)
class ImageSlices:
    """How an image of a large area is cut into slices of any shape, which follow all of it.

    The image, and each of its slices, is resized to about the area of a square and has the same
    number of rows of embeddings, whatever its shape.

    side       pixels of a side of that square
    rows       rows of embeddings
    max_count  the most slices
    begin      text before the image: {image} is its number in the prompt, from 0
    start      special token before the rows of a slice
    end        special token after them
    line_end   text between rows of slices
    """

    side: int
    rows: int
    max_count: int
    begin: str
    start: str
    end: str
    line_end: str

    def __post_init__(self) -> None:
        """Raises NotABundle for numbers out of range."""
        limits = {
            "side": (self.side, 1, MAX_SIDE),
            "rows": (self.rows, 1, MAX_SIDE),
            "max_count": (self.max_count, 1, MAX_TILES),
        }
        require_within(limits, "images.slices")

    def text(self, rows: int, columns: int, placeholder: str) -> str:
        """The text of rows and columns of slices."""
        line = (self.start + placeholder + self.end) * columns
        return self.line_end.join([line] * rows)


@dataclass(frozen=True, kw_only=True)
class PaddedTiles:
    """How an image is cut into square tiles, which follow its rows as one square.

    The image is resized, in its own shape, to a layout of tiles, and padded with black. The rows of
    the tiles follow each other line by line, as they are in the image; lines of padding are left
    out. The last row of embeddings of each square ends a line.

    layouts  columns and rows of tiles. The image is cut as the layout says that keeps most of its
             pixels, of several such layouts the smallest one, and of these the first one
    """

    layouts: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        """Raises NotABundle for layouts of no tile, or of too many."""
        if not self.layouts:
            raise NotABundle(f"{MANIFEST}.images.padded.layouts: got none, expected at least one")
        for columns, rows in self.layouts:
            limits = {"columns": (columns, 1, MAX_TILES), "rows": (rows, 1, MAX_TILES // columns)}
            require_within(limits, "images.padded.layouts")


def numbered(text: str, row: int, column: int) -> str:
    """A text with the numbers of a row and a column, from 0."""
    return text.replace("{row}", str(row + 1)).replace("{column}", str(column + 1))


def require_within(limits: Mapping[str, tuple[int, int, int]], path: str) -> None:
    """Raise NotABundle for a number that is not between the two others."""
    for name, (size, smallest, largest) in limits.items():
        if not smallest <= size <= largest:
            raise NotABundle(
                f"{MANIFEST}.{path}.{name}: got {size}, expected {smallest} to {largest}"
            )
