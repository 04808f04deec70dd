"""An image or a sound of a request as the model reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hearthd.text.conversation import MediaKind
    from hearthd.text.text_request import ImageSquare


@dataclass(frozen=True)
class ReadMedia:
    """The squares of an image, or a sound, and the text that the prompt has in its place."""

    kind: MediaKind
    squares: tuple[ImageSquare, ...]
    text: str
