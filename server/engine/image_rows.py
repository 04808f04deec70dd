"""The rows of embeddings of the latest images, so that another question computes none again.

The prefix cache has the rows that whole chunks of a prompt left in the KV caches. The chunk in
which an image ends has a part of the question too, and is read again with each question. With a
store, the rows outlive the process as the blocks of the prefix cache do.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from hearthd.server.fault_isolation import contained

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.runtime.interface import Runtime
    from hearthd.server.engine.prefix_cache import Store
    from hearthd.server.engine.prompt import ImageRows


class LatestImageRows:
    """Computes rows, and keeps at most `limit_bytes` of them in memory, and more in a store."""

    def __init__(self, runtime: Runtime, *, limit_bytes: int, store: Store | None = None) -> None:
        self._runtime = runtime
        self._store = store
        self._limit = limit_bytes
        self._rows: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()  # the latest one last
        self._bytes = 0

    def rows(self, image: ImageRows) -> NDArray[np.float32]:
        """The rows of a square, f32 (n, E)."""
        rows = self._rows.get(image.digest)
        if rows is None:
            rows = self._rows[image.digest] = self._read(image)
            self._bytes += rows.nbytes
        self._rows.move_to_end(image.digest)
        while self._bytes > self._limit:
            self._bytes -= self._rows.popitem(last=False)[1].nbytes
        return rows

    def _read(self, image: ImageRows) -> NDArray[np.float32]:
        if self._store is None:
            return self._runtime.read_image(image.pixels)
        key = _key(image.digest)
        with contained("reading the rows of an image"):
            stored = self._store.load(key)
            if stored is not None:
                return stored.view(np.float32).reshape(-1, self._runtime.hidden)
        rows = self._runtime.read_image(image.pixels)
        self._store.save(key, np.ascontiguousarray(rows).view(np.uint8).reshape(-1))
        return rows


def _key(digest: bytes) -> bytes:
    """The key in the store, which differs from those of blocks."""
    return hashlib.sha256(b"image" + digest).digest()
