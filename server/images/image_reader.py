"""The images of a conversation, as the model of a bundle reads them."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle import PIXEL_MEMORY, GridInput
from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.images.decoding import decoded
from hearthd.server.images.grids import grids
from hearthd.server.images.image_data import from_url
from hearthd.server.images.image_memory import ImageMemory
from hearthd.server.images.squares import squares
from hearthd.text.text_request import ImageSquare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.bundle import ImageInput
    from hearthd.text.conversation import Media
    from hearthd.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ReadImage:
    """The squares of an image, and the text that the prompt has in its place."""

    squares: tuple[ImageSquare, ...]
    text: str


class ImageReader:
    """Reads images as `settings` say. For any thread."""

    def __init__(self, settings: ImageInput | GridInput, tokenizer: Tokenizer) -> None:
        self.marker = settings.marker
        self._settings = settings
        self._placeholder = tokenizer.special_id(settings.placeholder)
        self._memory = ImageMemory(PIXEL_MEMORY)

    def read(self, images: Sequence[Media]) -> list[ReadImage]:
        """Decode images one after the other; raises InvalidRequest or ImagesFull."""
        return [self._read(image) for image in images]

    def _read(self, image: Media) -> ReadImage:
        data = from_url(image.url, image.field) if image.data is None else image.data
        pixels = decoded(data, image.field)
        settings = self._settings
        if isinstance(settings, GridInput):
            parts = grids(pixels, settings, image.field)
            read = tuple(self._grid(part, settings) for part in parts.pixels)
        else:
            parts = squares(pixels, settings)
            read = tuple(
                self._square(square, rows=settings.rows, both_ways=settings.both_ways)
                for square in parts.pixels
            )
        return ReadImage(read, settings.text(parts.rows, parts.columns))

    def _grid(self, pixels: NDArray[np.uint8], settings: GridInput) -> ImageSquare:
        """An image as a tower for images of any size reads it."""
        grid = pixels.shape[0] // settings.step, pixels.shape[1] // settings.step
        square = self._square(pixels, rows=grid[0] * grid[1])
        return square if settings.axes == 1 else dataclasses.replace(square, grid=grid)

    def _square(
        self, pixels: NDArray[np.uint8], *, rows: int, both_ways: bool = False
    ) -> ImageSquare:
        self._memory.take(pixels, pixels.nbytes)
        height, width, _ = pixels.shape
        digest = hashlib.sha256(b"%d %d " % (height, width) + pixels.tobytes()).digest()
        return ImageSquare(pixels=pixels, digest=digest, rows=rows, both_ways=both_ways)

    def positions(self, ids: Sequence[int], images: Sequence[ImageSquare]) -> tuple[int, ...]:
        """The ids of a prompt, with NO_TOKEN for each row of its images.

        A placeholder that is of no image is one position.
        """
        return tuple(self._positions(ids, iter(images)))

    def _positions(self, ids: Sequence[int], images: Iterator[ImageSquare]) -> Iterator[int]:
        for id_ in ids:
            if id_ == self._placeholder:
                image = next(images, None)
                yield from (NO_TOKEN,) * (1 if image is None else image.rows)
            else:
                yield id_
