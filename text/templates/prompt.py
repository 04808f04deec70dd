"""A prompt as a template renders it. Importing it does not import Jinja."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hearthd.text.reasoning import Reasoning
    from hearthd.text.text_request import ImageSquare


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A rendered conversation: its text, and its ids as the model reads them.

    `reasoning` is the answer's, or None if the template has no tags for it. `images` are as
    in TextRequest.
    """

    text: str
    ids: tuple[int, ...]
    reasoning: Reasoning | None = None
    images: tuple[ImageSquare, ...] = ()
