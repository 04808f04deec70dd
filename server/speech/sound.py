"""From a sound file to mono samples at 16 kHz, block after block: in the memory of a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.runtime.media.log_mel import SAMPLE_RATE
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

FIELD = "file"
MAX_SECONDS = 4 * 3600


class Sound:
    """Samples f32 at 16 kHz, of `blocks`, which are read when they are needed."""

    def __init__(self, blocks: Iterator[NDArray[np.float32]]) -> None:
        self._blocks = blocks
        self._kept = np.zeros(0, np.float32)
        self._position = 0  # of the first sample that is kept

    @property
    def seconds(self) -> float:
        """The length of what has been read."""
        return (self._position + len(self._kept)) / SAMPLE_RATE

    def read(self, position: int, count: int) -> NDArray[np.float32]:
        """Up to `count` samples from `position` on, fewer at the end. Positions never decrease.

        Raises InvalidRequest for a file that is not complete, or too long.
        """
        while self._position + len(self._kept) < position + count:
            block = next(self._blocks, None)
            if block is None:
                break
            self._drop(position)
            self._kept = np.concatenate([self._kept, block])
            if self.seconds > MAX_SECONDS:
                raise too_long(self.seconds)
        self._drop(position)
        return self._kept[:count]

    def _drop(self, position: int) -> None:
        """Forget samples before `position`."""
        count = min(max(0, position - self._position), len(self._kept))
        self._kept = self._kept[count:]
        self._position += count


def too_long(seconds: float) -> InvalidRequest:
    """The error for a sound of more than MAX_SECONDS."""
    return InvalidRequest(
        field=FIELD,
        got=f"{seconds:.0f} s",
        expected=f"a sound of at most {MAX_SECONDS} s: split it",
    )
