"""Memory that ends where a page begins that may not be read."""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_SIZE = 32 << 20  # bytes


class GuardedMemory:
    """Bytes that are used from their end."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE + mmap.PAGESIZE)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        end = ctypes.c_void_p(self._bytes.ctypes.data + _SIZE)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(end, ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def last(self, size: int) -> Array:
        """The last bytes before the page."""
        return self._bytes[_SIZE - size : _SIZE]
