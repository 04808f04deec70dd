"""ASGI middleware: limit the size of one request body, and the memory of all bodies together.

A body with a Content-Length is rejected before it is read, a chunked one once it is too long.
Parsed JSON takes memory per byte and per value: `[[],[]...` takes 35 bytes for each byte sent. So a
body counts with both, until its request is answered, against a limit for all bodies. The middleware
does not parse: every `,`, `:`, `[` and `{` counts as a value, in strings too. Files in a form are
not parsed, and count with their bytes alone, where the route reads a form: others may parse JSON
whatever the Content-Type says.

Memory for a body is taken at its first message, for the announced length: some of several bodies at
once fit, and the others wait; if each took memory as it arrives, none might fit. A client
that sends slowly keeps memory only for what has arrived. While others wait for memory, slow
clients lose it, because a few of them could keep all memory for hours.

Streams that are kept for their clients take a part of the same memory until a body needs it, and so
do many connections: see server/process/connection_memory.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import TYPE_CHECKING, Protocol

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from hearthd.bundle import UPLOAD_BYTES_PER_BYTE
from hearthd.server.api.http_errors import fault, respond

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

UPLOAD = "multipart/form-data"
_CLOSE = {"Connection": "close"}  # otherwise the server would have to read the rest of the body
_RETRY = {"Retry-After": "1"}
# Memory per byte: the joined body, its text with wide characters, and the strings in it.
_BYTES_PER_BYTE = 8
_BYTES_PER_VALUE = 40
_LARGE = 1_000_000
_SAMPLE = 1000  # bytes of a body that tell how many values the rest has
_MAX_WAIT = 5.0  # seconds for memory to become free
_MAX_WAITING = 16  # bodies, each with a message that does not count yet
_PATIENCE = 0.5  # seconds that a body's memory is kept for its client
# A body is slow if it has arrived for more than 10 seconds, at fewer than 20,000 bytes per second.
_SLOW_AFTER, _SLOW_RATE = 10.0, 20_000


class KeptStreams(Protocol):
    """Streams that are kept for their clients."""

    @property
    def memory(self) -> int:
        """Bytes that they take."""

    def drop_ended(self) -> None:
        """Forget those that are complete."""


class BodyLimit:
    """Answer 413 to a body of more than `max_bytes`, 503 when memory for bodies stays full.

    `memory` is the estimated memory in bytes that all bodies may take now: it grows with models
    that are found later. `streams` and `connections` take a part of it; streams give back what they
    can. Routes at `upload_paths` read forms.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        memory: Callable[[], int],
        streams: KeptStreams,
        upload_paths: Collection[str],
        connections: Callable[[], int] = lambda: 0,
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._upload_paths = upload_paths
        self._memory = _Memory(memory, streams, connections)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The HTTP parser has rejected a length that is not a number.
        headers = Headers(scope=scope)
        length = int(headers.get("Content-Length", "0"))
        is_form = headers.get("Content-Type", "").lower().startswith(UPLOAD)
        is_upload = is_form and scope["path"] in self._upload_paths
        body = _Body(receive, length, self._max_bytes, self._memory, is_upload=is_upload)
        if length > self._max_bytes:
            await respond(fault(413, body.too_long), _CLOSE)(scope, receive, send)
            return
        try:
            await self._app(scope, body.receive, send)
        finally:
            is_large = body.taken > _LARGE
            body.keep(0)
            if is_large:
                gc.collect()  # validation errors hold the body in reference cycles


class _Memory:
    """The memory of all bodies in bytes. What fits is taken at once, the rest waits in order."""

    def __init__(
        self, size: Callable[[], int], streams: KeptStreams, connections: Callable[[], int]
    ) -> None:
        self._size = size
        self._streams = streams
        self._connections = connections
        self._taken = self._waiting = 0
        self._freed = asyncio.Event()
        self.arriving: set[_Body] = set()  # whose clients are to send more

    @property
    def size(self) -> int:
        """The memory of all bodies, taken or not."""
        return self._size()

    async def take(self, size: int) -> None:
        """Take memory, when there is enough; raises TimeoutError."""
        if not self._fits(size):
            self._streams.drop_ended()
        if not self._fits(size):
            await self._wait_for(size)
        self._taken += size

    def give_back(self, size: int) -> None:
        """Give memory back, to those that wait for it."""
        self._taken -= size
        self._freed.set()
        self._freed = asyncio.Event()

    def _fits(self, size: int) -> bool:
        taken = self._taken + self._streams.memory + self._connections()
        return taken + size <= self.size

    async def _wait_for(self, size: int) -> None:
        if self._waiting == _MAX_WAITING:
            raise TimeoutError
        self._waiting += 1
        try:
            async with asyncio.timeout(_MAX_WAIT):
                while not self._fits(size):
                    slow = (body for body in self.arriving if body.is_slow)
                    if body := max(slow, key=lambda body: body.taken, default=None):
                        body.refuse()
                    await self._freed.wait()
        finally:
            self._waiting -= 1


class _Body:
    """The body of one request, of `length` bytes or of unknown length (0)."""

    def __init__(
        self, receive: Receive, length: int, max_bytes: int, memory: _Memory, *, is_upload: bool
    ) -> None:
        self.taken = 0  # bytes of memory
        self.too_long = _too_long(f"{max_bytes} bytes (--max-body-bytes)")
        self._receive = receive
        self._is_upload = is_upload
        self._length = length
        self._max_bytes = max_bytes
        self._memory = memory
        self._size = self._needed = 0  # of what has arrived
        self._is_whole = False
        self._patience = _PATIENCE
        self._began = 0.0  # when the client was first waited for
        self._turn = asyncio.timeout(None)

    @property
    def is_slow(self) -> bool:
        """Whether it keeps memory for a slow client."""
        seconds = asyncio.get_running_loop().time() - self._began
        return self.taken > 0 and seconds > _SLOW_AFTER and self._size < _SLOW_RATE * seconds

    def refuse(self) -> None:
        """Give the memory back now, and read the rest without keeping it."""
        self._memory.arriving.discard(self)
        self._turn.reschedule(0)

    async def receive(self) -> Message:
        """The whole body as one message, then what follows it; raises HTTPException."""
        if self._is_whole:
            return await self._receive()
        with contextlib.suppress(TimeoutError):
            return await self._read()
        self.keep(0)
        while not self._is_whole:  # read the rest, so that the client gets the answer
            await self._next()
        if self._size > (longest := self._memory.size // _BYTES_PER_BYTE):
            raise HTTPException(413, _too_long(f"{longest} bytes, or smaller images"))
        if self._needed > self._memory.size:
            raise HTTPException(413, "body: too many values; send a smaller request")
        raise HTTPException(503, "request memory is full; retry later", _RETRY)

    def keep(self, size: int) -> None:
        """Give back the memory beyond this size."""
        surplus = max(0, self.taken - size)
        self._memory.give_back(surplus)
        self.taken -= surplus

    async def _read(self) -> Message:
        parts: list[bytes] = []
        while not self._is_whole:
            message = await self._next()
            if message["type"] != "http.request":
                return message
            await self._take(self._needed if parts else self._expected())
            parts.append(message.get("body", b""))
        self.keep(self._needed)
        return {"type": "http.request", "body": b"".join(parts), "more_body": False}

    async def _next(self) -> Message:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._began = self._began or began
        timer = loop.call_later(self._patience, lambda: self.keep(self._needed))
        self._memory.arriving.add(self)
        try:
            async with asyncio.timeout(None) as self._turn:
                message = await self._receive()
        finally:
            self._memory.arriving.discard(self)
            timer.cancel()
            self._patience -= loop.time() - began
        chunk = message.get("body", b"")
        self._size += len(chunk)
        self._needed += (
            UPLOAD_BYTES_PER_BYTE * len(chunk) if self._is_upload else estimated_memory(chunk)
        )
        self._is_whole = not message.get("more_body")
        if self._size > self._max_bytes:
            raise HTTPException(413, self.too_long, _CLOSE)
        return message

    def _expected(self) -> int:
        """The memory of the whole body, if the rest has as many values as what has arrived."""
        like_this = self._needed * self._length // max(self._size, _SAMPLE)
        return max(self._needed, min(self._memory.size, like_this))

    async def _take(self, size: int) -> None:
        """Take memory up to this size; raises TimeoutError."""
        if size > self._memory.size:
            raise TimeoutError
        missing = max(0, size - self.taken)
        await self._memory.take(missing)
        self.taken += missing


def _too_long(expected: str) -> str:
    # Clients search for the last words, and shorten the conversation.
    return (
        f"body: too large: expected at most {expected}; if it holds a prompt, the prompt is too "
        "long"
    )


def estimated_memory(chunk: bytes) -> int:
    """The memory that a part of a JSON body takes once it is parsed, in bytes, as an estimate."""
    values = sum(map(chunk.count, (b",", b":", b"[", b"{")))
    return _BYTES_PER_BYTE * len(chunk) + _BYTES_PER_VALUE * values
