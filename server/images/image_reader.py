"""The images of a conversation, as the model of a bundle reads them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle import PIXEL_MEMORY
from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.images.decoding import decoded
from hearthd.server.images.image_data import from_url
from hearthd.server.images.image_memory import ImageMemory
from hearthd.server.images.squares import squares
from hearthd.text.text_request import ImageSquare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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

    def __init__(self, settings: ImageInput, tokenizer: Tokenizer) -> None:
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
        cut = squares(pixels, self._settings)
        for square in cut.pixels:
            self._memory.take(square, square.nbytes)
        return ReadImage(
            tuple(
                ImageSquare(
                    pixels=square,
                    digest=hashlib.sha256(square.tobytes()).digest(),
                    rows=self._settings.rows,
                    both_ways=self._settings.both_ways,
                )
                for square in cut.pixels
            ),
            self._settings.text(cut.rows, cut.columns),
        )

    def positions(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The ids of a prompt, with NO_TOKEN for each row in the place of placeholders."""
        return tuple(self._positions(ids))

    def _positions(self, ids: Sequence[int]) -> Iterator[int]:
        for id_ in ids:
            if id_ == self._placeholder:
                yield from (NO_TOKEN,) * self._settings.rows
            else:
                yield id_
