"""The markers of images and sounds in the text of a prompt, as in llama-server.

They are random, so that the text of a stranger in a prompt cannot contain them. Clients read
MEDIA_MARKER at /props; older ones write KNOWN_MARKER, which counts in a text without the random
one. The server puts TEMPLATE_MARKERS into messages whose chat template writes nothing for media.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.text.conversation import MediaKind

MEDIA_MARKER = f"<__media_{secrets.token_hex(16)}__>"
KNOWN_MARKER = "<__media__>"
TEMPLATE_MARKERS: Mapping[MediaKind, str] = {
    "image": f"<__image_{secrets.token_hex(16)}__>",
    "audio": f"<__audio_{secrets.token_hex(16)}__>",
}


def split_at_markers(text: str) -> list[str]:
    """The texts around the markers, one more than there are images."""
    return text.split(MEDIA_MARKER if MEDIA_MARKER in text else KNOWN_MARKER)
