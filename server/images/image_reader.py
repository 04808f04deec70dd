"""An image of a conversation, as the model of a bundle reads them."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

from hearthd.bundle import GridInput
from hearthd.server.images.decoding import decoded
from hearthd.server.images.grids import grids
from hearthd.server.images.image_data import from_url
from hearthd.server.images.padded_tiles import padded_tiles, runs
from hearthd.server.images.read_media import ReadMedia
from hearthd.server.images.slices import sliced
from hearthd.server.images.squares import squares
from hearthd.text.text_request import ImageSquare

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    from hearthd.bundle import ImageInput
    from hearthd.server.images.image_memory import ImageMemory
    from hearthd.text.conversation import Media


class ImageReader:
    """Reads images as `settings` say. For one thread."""

    def __init__(self, settings: ImageInput | GridInput, memory: ImageMemory) -> None:
        self._settings, self._memory = settings, memory

    def read(self, image: Media) -> ReadMedia:
        """Decode an image; raises InvalidRequest or ImagesFull."""
        data = from_url(image.url, image.field, "image") if image.data is None else image.data
        pixels = decoded(data, image.field)
        settings = self._settings
        if isinstance(settings, GridInput):
            read_parts = grids if settings.slices is None else sliced
            parts = read_parts(pixels, settings, image.field)
            read = tuple(self._grid(part, settings) for part in parts.pixels)
            text = settings.text(parts.rows, parts.columns, read[-1].lines)
        elif settings.padded is not None:
            read = tuple(self._runs(pixels, settings, image.field))
            text = settings.text(0, 0, len(read))
        else:
            parts = squares(pixels, settings)
            read = tuple(self._square(square, rows=settings.rows) for square in parts.pixels)
            text = settings.text(parts.rows, parts.columns)
        return ReadMedia("image", read, text)

    def _grid(self, pixels: NDArray[np.uint8], settings: GridInput) -> ImageSquare:
        """An image as a tower for images of any size reads it."""
        grid = pixels.shape[0] // settings.step, pixels.shape[1] // settings.step
        square = self._square(pixels, rows=settings.rows_of(grid[0] * grid[1]))
        return dataclasses.replace(
            square, grid=None if settings.axes == 1 else grid, lines=settings.lines(grid[0])
        )

    def _runs(self, image: Image.Image, settings: ImageInput, field: str) -> Iterator[ImageSquare]:
        """The rows of an image and its tiles, in their order."""
        parts = padded_tiles(image, settings, field)
        squares = [self._square(square, rows=settings.rows) for square in parts.pixels]
        for number, start, end in runs(*image.size, parts, settings):
            yield dataclasses.replace(squares[number], offset=start, rows=end - start)

    def _square(self, pixels: NDArray[np.uint8], *, rows: int) -> ImageSquare:
        self._memory.take(pixels, pixels.nbytes)
        height, width, _ = pixels.shape
        digest = hashlib.sha256(b"%d %d " % (height, width) + pixels.tobytes()).digest()
        return ImageSquare(
            media=pixels, digest=digest, rows=rows, both_ways=self._settings.both_ways
        )
