"""The texts that a prompt has in the places of images."""

from __future__ import annotations

from dataclasses import dataclass

from hearthd.text.errors import InvalidRequest


@dataclass(frozen=True)
class ImageTexts:
    """The special token that a chat template writes for an image, and a text for each image."""

    marker: str
    texts: tuple[str, ...]

    def placed(self, prompt: str) -> str:
        """The prompt with the texts in the places of the markers; raises InvalidRequest."""
        start, *others = prompt.split(self.marker)
        if len(others) != len(self.texts):
            raise InvalidRequest(
                field="messages",
                got=f"{len(self.texts)} images",
                expected=f"{len(others)}, which the model's chat template writes",
            )
        pairs = zip(self.texts, others, strict=True)
        return start + "".join(image + other for image, other in pairs)
