"""Streams that go on without their client, and that the client can read again.

A stream belongs to an API key and has the id that the client chose. It keeps the last bytes that
it sent, so that a reader can begin at an offset. An ended stream is kept for a while. The bytes of
all streams are a part of the memory for requests, which bodies need more: see Streams.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

# As llama-server's STREAM_SESSION_MAX_BYTES and STREAM_SESSION_TTL_SECONDS.
_MAX_BYTES = 2**22
_RETENTION = 300.0
_MAX_TOTAL_BYTES = 2**23
_OVERHEAD = 2048  # bytes of an empty stream
_READ_SIZE = 2**16


class OffsetLost(Exception):
    """The bytes at an offset were dropped to make room for newer ones."""


class Stream:
    """The last `max_bytes` bytes of an answer. Times are Unix times."""

    def __init__(self, owner: str, id_: str, *, max_bytes: int = _MAX_BYTES) -> None:
        self.owner = owner
        self.id = id_
        self.started_at = int(time.time())
        self.completed_at = 0
        self.headers: list[tuple[bytes, bytes]] | None = None
        self.cancel: Callable[[], object] = lambda: None
        self._max_bytes = max_bytes
        self._kept = bytearray()
        self._dropped = 0
        self._changed = asyncio.Event()

    @property
    def total_bytes(self) -> int:
        """Number of bytes so far, including those that were dropped."""
        return self._dropped + len(self._kept)

    @property
    def memory(self) -> int:
        """Bytes that the stream takes."""
        return _OVERHEAD + len(self.id) + len(self._kept)

    @property
    def is_done(self) -> bool:
        """Whether there will be no more bytes."""
        return self.completed_at > 0

    def append(self, data: bytes) -> None:
        """Add bytes at the end; drop the oldest ones beyond the limit."""
        self._kept += data
        self.shorten(len(self._kept) - self._max_bytes)
        self._wake_readers()

    def shorten(self, count: int) -> None:
        """Drop up to this many of the oldest bytes."""
        before = len(self._kept)
        del self._kept[: max(0, count)]
        self._dropped += before - len(self._kept)

    def finish(self) -> None:
        """End the stream, also for its readers."""
        self.completed_at = self.completed_at or int(time.time())
        self._wake_readers()

    def require(self, offset: int) -> None:
        """Raise OffsetLost if the bytes at an offset were dropped."""
        if offset < self._dropped:
            raise OffsetLost(f"the stream is kept from byte {self._dropped} on")

    async def read(self, offset: int = 0) -> AsyncIterator[bytes]:
        """The bytes from an offset to the end of the stream, as they arrive; raises OffsetLost."""
        while True:
            self.require(offset)
            changed = self._changed
            first = offset - self._dropped
            if data := bytes(self._kept[first : first + _READ_SIZE]):
                offset += len(data)
                yield data
            elif self.is_done:
                return
            else:
                await changed.wait()

    def _wake_readers(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Streams:
    """The streams of all owners, found by owner and id.

    Ended streams are dropped after `retention` seconds. They are dropped earlier, in the order in
    which they ended, when all streams take more than `limit` bytes, or when the memory
    is needed. If the running ones alone take more, a stream that grows loses its oldest bytes.
    """

    def __init__(
        self,
        *,
        limit: int = _MAX_TOTAL_BYTES,
        retention: float = _RETENTION,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._retention = retention
        self._clock = clock
        self._streams: dict[tuple[str, str], Stream] = {}
        self._ended: dict[Stream, float] = {}  # with the time of the end, in order
        self._memory = 0

    @property
    def memory(self) -> int:
        """Bytes that all streams take."""
        return self._memory

    def open(self, owner: str, id_: str) -> Stream:
        """A new stream. An earlier one with this id is cancelled."""
        self.stop(owner, id_)
        stream = self._streams[owner, id_] = Stream(owner, id_)
        self._memory += stream.memory
        return stream

    def append(self, stream: Stream, data: bytes) -> None:
        """Add bytes at the end of a stream."""
        before = stream.memory
        stream.append(data)
        if not self._has(stream):
            return
        self._memory += stream.memory - before
        self._drop_old()
        before = stream.memory
        stream.shorten(self._memory - self._limit)
        self._memory += stream.memory - before

    def find(self, owner: str, id_: str) -> Stream | None:
        """The stream with an id, or None."""
        self._drop_old()
        return self._streams.get((owner, id_))

    def lookup(self, owner: str, ids: Iterable[str]) -> Iterator[Stream]:
        """The streams whose id is one of these, or one of these followed by `::` and a model.

        Each is found once, also if several ids find it.
        """
        self._drop_old()
        wanted = {*ids}
        for (found_owner, found), stream in self._streams.items():
            if found_owner == owner and not wanted.isdisjoint(_found_by(found)):
                yield stream

    def end(self, stream: Stream) -> None:
        """End a stream, and keep it for a while unless it was stopped."""
        stream.finish()
        if self._has(stream):
            self._ended[stream] = self._clock()
        self._drop_old()

    def drop(self, stream: Stream) -> None:
        """Forget a stream; its readers read it to its end."""
        self._ended.pop(stream, None)
        if self._has(stream):
            del self._streams[stream.owner, stream.id]
            self._memory -= stream.memory

    def stop(self, owner: str, id_: str) -> None:
        """Cancel the answer with an id and forget its stream, if there is one."""
        if stream := self._streams.get((owner, id_)):
            self.drop(stream)
            stream.finish()
            stream.cancel()

    def stop_all(self) -> None:
        """Cancel the answers of all streams."""
        for owner, id_ in list(self._streams):
            self.stop(owner, id_)

    def drop_ended(self) -> None:
        """Forget the streams that have ended."""
        for stream in list(self._ended):
            self.drop(stream)

    def _has(self, stream: Stream) -> bool:
        return self._streams.get((stream.owner, stream.id)) is stream

    def _drop_old(self) -> None:
        while self._ended:
            stream, ended = next(iter(self._ended.items()))
            if self._memory <= self._limit and self._clock() - ended < self._retention:
                return
            self.drop(stream)


def _found_by(id_: str) -> Iterator[str]:
    """The ids that find a stream: its own, and what is in front of each `::`."""
    yield id_
    end = id_.find("::")
    while end >= 0:
        yield id_[:end]
        end = id_.find("::", end + 1)
