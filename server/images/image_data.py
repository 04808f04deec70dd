"""The bytes of images and sound in requests: data URIs and base64."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.text.conversation import MediaKind

_DATA_URI = re.compile(
    r"data:(?:(?:image|audio)/[\w.+-]+)?(?:;[\w.+-]+=[\w.+-]+)*;base64,", re.IGNORECASE
)


_EXPECTED: Mapping[MediaKind, str] = {
    "image": "the image itself, as data:image/...;base64,...: the server downloads images only "
    "with --fetch-images, at http and https addresses",
    "audio": "the sound itself, in base64: the server downloads no sound",
}


def from_url(url: str, field: str, kind: MediaKind) -> bytes:
    """The bytes in a data URI, or in base64 alone, which llama-server takes too.

    Raises InvalidRequest at `field` for another address.
    """
    if url and ":" not in url:
        return from_base64(url, field)
    match = _DATA_URI.match(url)
    if match is None:
        raise InvalidRequest(field=field, got=url[:80], expected=_EXPECTED[kind])
    return from_base64(url[match.end() :], field)


def from_base64(text: str, field: str) -> bytes:
    """The bytes that base64 stands for; raises InvalidRequest at `field`."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # binascii.Error, or a character that is not ASCII
        raise InvalidRequest(field=field, got=text[:40], expected=f"base64: {error}") from None
