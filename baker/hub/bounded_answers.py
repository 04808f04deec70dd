"""The hub's client with a limit for the answers that it reads into memory: lists and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
from huggingface_hub.utils import get_session
from typing_extensions import override

from hearthd.bundle import megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "hearthd.file"  # extension of a request for a file, which is not read into memory
MAX_BYTES = 1 << 24  # the list of a repository with 40,000 files
_OK, _PARTIAL = 200, 206


def bounded_session() -> httpx2.Client:
    """The client that the hub's library uses, which then raises TransportError beyond the limit."""
    session = get_session()
    hooks = session.event_hooks
    if _bound not in hooks["response"]:
        session.event_hooks = {**hooks, "response": [*hooks["response"], _bound]}
    return session


def _bound(response: httpx2.Response) -> None:
    """Limit the body of a response unless it is the file that was asked for."""
    is_file = FILE in response.request.extensions and response.status_code in (_OK, _PARTIAL)
    if not is_file and isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx2.SyncByteStream):
    """A body of at most MAX_BYTES bytes."""

    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    @override
    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > MAX_BYTES:
                raise httpx2.RemoteProtocolError(
                    f"an answer has more than {megabytes(MAX_BYTES)} MB"
                )
            yield chunk

    @override
    def close(self) -> None:
        self._stream.close()
