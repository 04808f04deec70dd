"""The texts that a prompt has in the places of images and sound."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.text.conversation import MediaKind


@dataclass(frozen=True)
class MediaTexts:
    """The special tokens that a chat template writes, by kind, and the texts in their places."""

    markers: Mapping[MediaKind, str]
    texts: tuple[tuple[MediaKind, str], ...]

    def placed(self, prompt: str) -> str:
        """The prompt with the texts in the places of the markers; raises InvalidRequest."""
        kinds = {marker: kind for kind, marker in self.markers.items()}
        start, *others = re.split(f"({'|'.join(map(re.escape, kinds))})", prompt)
        written = [kinds[marker] for marker in others[::2]]
        if written != [kind for kind, _ in self.texts]:
            raise InvalidRequest(
                field="messages",
                got=_listed([kind for kind, _ in self.texts]),
                expected=f"{_listed(written)}, which the model's chat template writes",
            )
        pairs = zip(self.texts, others[1::2], strict=True)
        return start + "".join(text + other for (_, text), other in pairs)


def _listed(kinds: list[MediaKind]) -> str:
    return ", ".join(kinds) or "none"
