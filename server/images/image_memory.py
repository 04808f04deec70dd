"""The memory that images of requests take."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING

from hearthd.server.errors import ImagesFull

if TYPE_CHECKING:
    from collections.abc import Iterator


class ImageMemory:
    """Counts the bytes of objects for as long as they exist."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0
        self._lock = threading.Lock()

    def take(self, owner: object, size: int) -> None:
        """Count the bytes that `owner` keeps; raises ImagesFull if they exceed the limit."""
        self._add(size)
        weakref.finalize(owner, self._free, size)

    @contextlib.contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Count bytes within a block; raises ImagesFull."""
        self._add(size)
        try:
            yield
        finally:
            self._free(size)

    def _add(self, size: int) -> None:
        with self._lock:
            if self.used + size > self._limit:
                raise ImagesFull("memory for images is full; retry later, or send fewer images")
            self.used += size

    def _free(self, size: int) -> None:
        with self._lock:
            self.used -= size
