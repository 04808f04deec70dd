"""The hub's client with limits: the size of lists and errors, and the time of every answer."""

from __future__ import annotations

import time
import zlib
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import httpx2
from huggingface_hub import constants
from huggingface_hub.utils import get_session
from typing_extensions import override

from hearthd.bundle import megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE = "hearthd.file"  # extension of a request for a file, which is not read into memory
MAX_BYTES = 1 << 24  # the list of a repository with 40,000 files
MIN_SPEED = 1000  # bytes per second, over a window
WINDOW = 30.0  # seconds; a response must begin within them
_OK, _PARTIAL = 200, 206
_GZIP_OR_ZLIB = 47  # zlib detects the header


@contextmanager
def bounded_answers() -> Iterator[None]:
    """Limit what the client of the hub's library receives in a block.

    Beyond a limit it raises TransportError. The client sends no telemetry in the block: for that it
    would first ask the hub for a list of the agents that may run it.
    """
    session = get_session()
    hooks, quiet = session.event_hooks, constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_DISABLE_TELEMETRY = True
    session.event_hooks = {
        "request": [*hooks["request"], _begin],
        "response": [*hooks["response"], _bound],
    }
    try:
        yield
    finally:
        session.event_hooks = hooks
        constants.HF_HUB_DISABLE_TELEMETRY = quiet
        _response.set(None)


class _Response:
    """How fast a response arrives. The time that its reader takes does not count."""

    def __init__(self) -> None:
        self.has_headers = False
        self._start = time.monotonic()
        self._bytes, self._waited = 0, 0.0  # of this window

    def count(self, size: int, waited: float) -> None:
        """Count a read from the connection; raises ReadTimeout if the hub is too slow."""
        if not self.has_headers and time.monotonic() - self._start > WINDOW:
            raise httpx2.ReadTimeout(f"a response did not begin within {WINDOW:g} s")
        self._bytes += size
        self._waited += waited
        if self._waited > WINDOW:
            if self._bytes < MIN_SPEED * self._waited:
                raise httpx2.ReadTimeout(f"it sends less than {MIN_SPEED} bytes per second")
            self._bytes, self._waited = 0, 0.0


_response: ContextVar[_Response | None] = ContextVar("_response", default=None)


def _begin(request: httpx2.Request) -> None:
    """Measure the response to a request, on each connection that is opened for it."""
    _response.set(_Response())
    if request.headers["Accept-Encoding"] != "identity":
        request.headers["Accept-Encoding"] = "gzip"
    request.extensions = {**request.extensions, "trace": _measure_reads}


def _measure_reads(event: str, info: Mapping[str, Any]) -> None:
    """Count what a connection reads: a timeout of the client restarts with each byte."""
    if not event.endswith((".connect_tcp.complete", ".start_tls.complete")):
        return
    stream = info["return_value"]
    read = stream.read

    def counted(max_bytes: int, timeout: float | None = None) -> bytes:
        start = time.monotonic()
        data: bytes = read(max_bytes, timeout)
        if (response := _response.get()) is not None:
            response.count(len(data), time.monotonic() - start)
        return data

    stream.read = counted


def _bound(response: httpx2.Response) -> None:
    """Limit the body of a response unless it is the file that was asked for."""
    if (measured := _response.get()) is not None:
        measured.has_headers = True
    is_file = FILE in response.request.extensions and response.status_code in (_OK, _PARTIAL)
    if not is_file and isinstance(response.stream, httpx2.SyncByteStream):
        encoding = response.headers.pop("Content-Encoding", "identity")
        response.stream = _BoundedStream(response.stream, encoding)


class _BoundedStream(httpx2.SyncByteStream):
    """A body of at most MAX_BYTES bytes, after it is decompressed."""

    def __init__(self, stream: httpx2.SyncByteStream, encoding: str) -> None:
        self._stream, self._encoding = stream, encoding

    @override
    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._decompressed():
            size += len(chunk)
            if size > MAX_BYTES:
                raise httpx2.RemoteProtocolError(
                    f"an answer has more than {megabytes(MAX_BYTES)} MB"
                )
            yield chunk

    def _decompressed(self) -> Iterator[bytes]:
        """The body in chunks of at most MAX_BYTES + 1 bytes; raises RemoteProtocolError."""
        if self._encoding == "identity":
            yield from self._stream
            return
        if self._encoding not in ("gzip", "deflate"):
            raise httpx2.RemoteProtocolError(f"an answer is compressed as {self._encoding!r}")
        decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
        for chunk in self._stream:
            try:
                yield decompressor.decompress(chunk, MAX_BYTES + 1)
            except zlib.error as error:
                raise httpx2.RemoteProtocolError(f"an answer is damaged: {error}") from error

    @override
    def close(self) -> None:
        self._stream.close()
