"""An image or a sound of a request as the model reads it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.text.conversation import MediaKind
    from hearthd.text.text_request import ImageSquare

_NUMBER = "{image}"


@dataclass(frozen=True)
class ReadMedia:
    """The squares of an image, or a sound, and the text that the prompt has in its place.

    In the text, {image} stands for the number of the image in the prompt, from 0.
    """

    kind: MediaKind
    squares: tuple[ImageSquare, ...]
    text: str


def numbered_texts(media: Sequence[ReadMedia]) -> tuple[str, ...]:
    """The texts of images and sounds, with the numbers of the images."""
    numbers = count()
    return tuple(
        item.text.replace(_NUMBER, str(next(numbers))) if item.kind == "image" else item.text
        for item in media
    )
