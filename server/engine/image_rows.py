"""The rows of embeddings of the latest images, so that another question computes none again.

The prefix cache has the rows that whole chunks of a prompt left in the KV caches. The chunk in
which an image ends has a part of the question too, and is read again with each question.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hearthd.runtime.interface import Runtime
    from hearthd.server.engine.prompt import ImageRows


class LatestImageRows:
    """Computes rows with a runtime, and keeps at most `limit_bytes` of them."""

    def __init__(self, runtime: Runtime, *, limit_bytes: int) -> None:
        self._runtime = runtime
        self._limit = limit_bytes
        self._rows: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()  # the latest one last
        self._bytes = 0

    def rows(self, image: ImageRows) -> NDArray[np.float32]:
        """The rows of a square, f32 (n, E)."""
        rows = self._rows.get(image.digest)
        if rows is None:
            rows = self._rows[image.digest] = self._runtime.read_image(image.pixels)
            self._bytes += rows.nbytes
        self._rows.move_to_end(image.digest)
        while self._bytes > self._limit:
            self._bytes -= self._rows.popitem(last=False)[1].nbytes
        return rows
