"""The rows of embeddings of the latest images, so that another question computes none again.

The prefix cache has the rows that whole chunks of a prompt left in the KV caches. The chunk in
which an image ends has a part of the question too, and is read again with each question. With a
store, the rows outlive the process as the blocks of the prefix cache do.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.server.fault_isolation import contained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hearthd.runtime.interface import Runtime
    from hearthd.server.engine.prefixes.prefix_cache import Store
    from hearthd.server.engine.prompt import ImageRows


@dataclass(frozen=True)
class Reading:
    """The work on the rows of a square, whose digest it has.

    Each step yields None, but the last one the rows, f32 (n, W). What is dropped before its last
    step takes no more memory.
    """

    digest: bytes
    steps: Iterator[NDArray[np.float32] | None]


class LatestImageRows:
    """Computes rows, and keeps at most `limit_bytes` of them in memory, and more in a store."""

    def __init__(self, runtime: Runtime, *, limit_bytes: int, store: Store | None = None) -> None:
        self._runtime = runtime
        self._store = store
        self._limit = limit_bytes
        self._rows: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()  # the latest one last
        self._bytes = 0

    def reading(self, image: ImageRows) -> Reading:
        """The work on the rows of a square."""
        return Reading(image.digest, self._steps(image))

    def _steps(self, image: ImageRows) -> Iterator[NDArray[np.float32] | None]:
        rows = self._rows.get(image.digest)
        if rows is None:
            rows = self._load(image.digest)
        if rows is None:
            for rows in self._runtime.read_media(image.media):
                if rows is None:
                    yield None
            assert rows is not None, "the last step yields rows"
            self._save(image.digest, rows)
        self._keep(image.digest, rows)
        yield rows

    def _keep(self, digest: bytes, rows: NDArray[np.float32]) -> None:
        if digest not in self._rows:
            self._rows[digest] = rows
            self._bytes += rows.nbytes
        self._rows.move_to_end(digest)
        while self._bytes > self._limit:
            self._bytes -= self._rows.popitem(last=False)[1].nbytes

    def _load(self, digest: bytes) -> NDArray[np.float32] | None:
        stored = None
        if self._store is not None:
            with contained("reading the rows of an image"):
                stored = self._store.load(_key(digest))
        width = self._runtime.row_width
        return None if stored is None else stored.view(np.float32).reshape(-1, width)

    def _save(self, digest: bytes, rows: NDArray[np.float32]) -> None:
        if self._store is not None:
            self._store.save(_key(digest), np.ascontiguousarray(rows).view(np.uint8).reshape(-1))


def _key(digest: bytes) -> bytes:
    """The key in the store, which differs from the key of every block."""
    return hashlib.sha256(b"image" + digest).digest()
