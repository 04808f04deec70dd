"""How a model reads images: the pixels that its tower expects, and the tokens around their rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.manifests.image_parts import (
    MAX_PIXELS,
    MAX_SIDE,
    ImageSlices,
    ImageTiles,
    PaddedTiles,
    numbered,
    require_within,
)
from hearthd.bundle.provenance import OMITTED

__all__ = ["GoldenImage", "GridInput", "ImageInput", "Resampling"]

Resampling: TypeAlias = Literal["bilinear", "bicubic", "lanczos"]
Fit: TypeAlias = Literal["stretch", "crop", "pad"]

_MAX_COLUMNS = 16  # squares in a row of an image
_GOLDEN_STEPS = 4  # rows and columns of the embeddings of a golden image


@dataclass(frozen=True, kw_only=True)
class GoldenImage:
    """The first row of embeddings of a square of stripes, as computed by NumPy.

    side    pixels of a side of the square
    values  of the row: E
    """

    side: int
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ImageInput:
    """How an image becomes squares, which the tower reads, and a text around their rows.

    An image with a `longest_edge` is resized to it, and to multiples of `side`. If that gives
    several squares, they precede the image as one square: for each of them `tile`, with the numbers
    of its row and column from 1, and after each row and after all of them `line_end`. An image with
    `tiles` or `padded` is cut as these say.

    side         pixels of a side of a square
    rows         rows of embeddings of a square; with `padded`, and one that ends a line
    longest_edge  pixels of the longer side of an image, or None: every image is one square
    fit          how an image of another shape becomes one square: it is stretched; its middle is
                 cropped; or it is padded with the mean
    tiles        how an image is cut in place of a `longest_edge`, or None
    padded       how an image is cut into tiles whose rows are put together, or None
    resampling   Pillow's filter
    mean         is subtracted from a pixel of each channel, after a division by 255
    std          divides the result
    marker       special token that the chat template writes for an image
    placeholder  special token that stands for the rows of a square in the texts below
    begin        text before all squares
    tile         text before the rows of a square that is a part of an image
    line_end     text after a row of squares
    start        text before the rows of the image as one square
    end          text after an image
    both_ways    whether the rows of a square are read as a block, in which they see each other
    """

    side: int
    rows: int
    longest_edge: int | None
    fit: Fit = field(default="stretch", metadata=OMITTED)
    tiles: ImageTiles | None = field(default=None, metadata=OMITTED)
    padded: PaddedTiles | None = field(default=None, metadata=OMITTED)
    resampling: Resampling
    mean: tuple[float, ...]
    std: tuple[float, ...]
    marker: str
    placeholder: str
    begin: str = field(default="", metadata=OMITTED)
    tile: str = ""
    line_end: str = ""
    start: str
    end: str
    both_ways: bool = field(default=False, metadata=OMITTED)

    def __post_init__(self) -> None:
        """Raises NotABundle for a size out of range, or numbers that cannot normalize pixels."""
        sizes = {"side": self.side, "rows": self.rows, "longest_edge": self.longest_edge or 1}
        for name, size in sizes.items():
            if not 1 <= size <= MAX_SIDE:
                raise NotABundle(f"{MANIFEST}.images.{name}: got {size}, expected 1 to {MAX_SIDE}")
        if (self.longest_edge or 1) > self.side * _MAX_COLUMNS:
            raise NotABundle(
                f"{MANIFEST}.images.longest_edge: got {self.longest_edge}, expected at most "
                f"{_MAX_COLUMNS} sides of {self.side}"
            )
        if self.tiles is not None and self.tiles.side != self.side:
            raise NotABundle(
                f"{MANIFEST}.images.tiles.side: got {self.tiles.side}, expected {self.side}"
            )
        if self.padded is not None and self.line_rows**2 != self.rows - 1:
            raise NotABundle(
                f"{MANIFEST}.images.rows: got {self.rows}, expected a square number and 1"
            )
        _require_channels(self.mean, self.std)

    @property
    def line_rows(self) -> int:
        """The rows of embeddings of a line of a square."""
        return math.isqrt(self.rows)

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens that a tokenizer must have."""
        return (self.placeholder,) if self.is_only_rows else (self.marker, self.placeholder)

    @property
    def is_only_rows(self) -> bool:
        """Whether the text of an image has no tokens but those that stand for its rows."""
        return not self.tile and self.text(0, 0) == self.placeholder

    @property
    def golden_side(self) -> int:
        """Pixels of a side of the golden image."""
        return self.side

    def text(self, rows: int, columns: int, runs: int = 1) -> str:
        """The text of an image that was cut into rows and columns of squares, or not at all.

        `runs` are the placeholders that stand for the rows of the image as one square, or of
        `padded` tiles: see server/images/padded_tiles.py.
        """
        lines = [
            "".join(numbered(self.tile, row, at) + self.placeholder for at in range(columns))
            for row in range(rows)
        ]
        tiles = "".join(line + self.line_end for line in [*lines, ""]) if lines else ""
        return f"{self.begin}{tiles}{self.start}{self.placeholder * runs}{self.end}"


@dataclass(frozen=True, kw_only=True)
class GridInput:
    """How an image of any size becomes patches, which the tower reads, and a text around its rows.

    An image is resized to sides that are multiples of `patch` * `merged` pixels, with an area
    between two limits, if its sides allow that. An image with a `longest_edge` is not enlarged
    more than that takes. An image with `slices` is resized and cut as these say.

    patch        pixels of a side of a patch
    merged       patches of a side of the square that gives one row of embeddings
    min_pixels   the smallest area
    max_pixels   the largest area
    fills        whether every image is resized to the largest area that its aspect ratio allows
    longest_edge  the most pixels of the longer side of an image, or None: areas alone are limited
    keeps_thin   whether a thin image keeps its aspect ratio: it is enlarged first, until its
                 shorter side has the pixels of a row of embeddings
    resampling   Pillow's filter
    mean         is subtracted from a pixel of each channel, after a division by 255
    std          divides the result
    marker       what the chat template writes for an image
    start        special token before the rows of an image
    placeholder  special token that stands for the rows in texts
    line_end     special token after each line of rows but the last; empty: lines follow each other
    end          special token after an image
    axes         numbers in the rotary position of a row: 1, or 3 for time, row and column
    parts        parts of a row: the first layer reads the first, and each other one is added to the
                 result of a layer
    tiles        how large images are cut; None: they are not
    slices       how images are cut whose number of rows is fixed; None: each square has a row
    own_line     whether an image is a line of its own in a message whose template writes no images
    both_ways    whether the rows of an image are read as a block, in which they see each other
    """

    patch: int
    merged: int
    min_pixels: int
    max_pixels: int
    fills: bool = field(default=False, metadata=OMITTED)
    longest_edge: int | None = field(default=None, metadata=OMITTED)
    keeps_thin: bool = field(default=False, metadata=OMITTED)
    resampling: Resampling
    mean: tuple[float, ...]
    std: tuple[float, ...]
    marker: str
    start: str
    placeholder: str
    line_end: str = field(default="", metadata=OMITTED)
    end: str
    axes: int
    parts: int = field(default=1, metadata=OMITTED)
    tiles: ImageTiles | None = field(default=None, metadata=OMITTED)
    slices: ImageSlices | None = field(default=None, metadata=OMITTED)
    own_line: bool = field(default=False, metadata=OMITTED)
    both_ways: bool = field(default=False, metadata=OMITTED)

    def __post_init__(self) -> None:
        """Raises NotABundle for a size out of range, or numbers that cannot normalize pixels."""
        limits = {
            "patch": (self.patch, 1, MAX_SIDE),
            "merged": (self.merged, 1, _MAX_COLUMNS),
            "parts": (self.parts, 1, _MAX_COLUMNS),
            "max_pixels": (self.max_pixels, self.step**2, MAX_PIXELS),
            "min_pixels": (self.min_pixels, 1, self.max_pixels),
        }
        require_within(limits, "images")
        if self.axes not in (1, 3):
            raise NotABundle(f"{MANIFEST}.images.axes: got {self.axes}, expected 1 or 3")
        if self.tiles is not None and self.tiles.side % self.step:
            raise NotABundle(
                f"{MANIFEST}.images.tiles.side: got {self.tiles.side}, expected a multiple of "
                f"{self.step}"
            )
        _require_channels(self.mean, self.std)

    @property
    def step(self) -> int:
        """Pixels of a side of the square that gives one row of embeddings."""
        return self.patch * self.merged

    @property
    def max_rows(self) -> int:
        """The most rows of embeddings of an image, or of a tile of one."""
        return self.rows_of(max(self.max_pixels // self.step**2, self._tile_rows))

    def rows_of(self, squares: int) -> int:
        """The rows of embeddings of an image, or a part of one, of a number of squares."""
        return squares if self.slices is None else self.slices.rows

    def patches_of(self, rows: int) -> int:
        """The patches that an entry point for a number of rows of embeddings reads."""
        squares = rows if self.slices is None else self.max_pixels // self.step**2
        return squares * self.merged**2

    @property
    def _tile_rows(self) -> int:
        return 0 if self.tiles is None else (self.tiles.side // self.step) ** 2

    def limited(self, rows: int) -> GridInput:
        """These settings, with images limited to `rows` rows of embeddings.

        Images are not cut into tiles if a tile has more. A fixed number of rows stays.
        """
        if self.slices is not None:
            return self
        tiles = self.tiles if self._tile_rows <= rows else None
        return replace(self, max_pixels=min(self.max_pixels, rows * self.step**2), tiles=tiles)

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens that a tokenizer must have."""
        tokens = tuple(filter(None, (self.start, self.placeholder, self.line_end, self.end)))
        if self.slices is not None:
            tokens = (*tokens, self.slices.start, self.slices.end)
        if self.tiles is None:
            return tokens
        places = {
            (row, column)
            for columns, rows in self.tiles.layouts
            for row in range(rows)
            for column in range(columns)
        }
        return *tokens, self.tiles.thumbnail, *(self.tiles.text(*place) for place in sorted(places))

    def lines(self, rows: int) -> int:
        """The lines of an image with rows of embeddings in this many rows: each has a token."""
        return rows if self.line_end else 1

    def text(self, rows: int, columns: int, lines: int = 1) -> str:
        """The text of an image that was cut into rows and columns of parts, or not at all."""
        image = self.line_end.join([self.placeholder] * lines)
        if self.slices is not None:
            slices = self.slices.text(rows, columns, self.placeholder)
            return f"{self.slices.begin}{self.start}{image}{self.end}{slices}"
        tiles = (
            []
            if self.tiles is None or not rows
            else [
                self.tiles.text(row, column) + self.placeholder
                for row in range(rows)
                for column in range(columns)
            ]
        )
        if self.tiles is not None and tiles:
            tiles.append(self.tiles.thumbnail)
        return f"{self.start}{''.join(tiles)}{image}{self.end}"

    @property
    def golden_side(self) -> int:
        """Pixels of a side of the golden image."""
        return min(_GOLDEN_STEPS, math.isqrt(self.max_pixels) // self.step) * self.step


def _require_channels(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    """Raise NotABundle for numbers that cannot normalize the pixels of three channels."""
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != 3 or not all(map(math.isfinite, values)) or 0 in std:
            raise NotABundle(f"{MANIFEST}.images.{name}: got {values!r:.80}, expected 3 numbers")
