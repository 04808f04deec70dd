"""The marker of an image in the text of a prompt, as in llama-server.

It is random, so that the text of a stranger in a prompt cannot contain it. Clients read it at
/props; older ones write KNOWN_MARKER, which counts in a text without the random one.
"""

import secrets

MEDIA_MARKER = f"<__media_{secrets.token_hex(16)}__>"
KNOWN_MARKER = "<__media__>"


def split_at_markers(text: str) -> list[str]:
    """The texts around the markers, one more than there are images."""
    return text.split(MEDIA_MARKER if MEDIA_MARKER in text else KNOWN_MARKER)
