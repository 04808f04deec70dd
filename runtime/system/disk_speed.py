"""How fast the storage delivers a file that is not in memory."""

from __future__ import annotations

import mmap
import os
import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = 1 << 20  # about the matrix of an expert
_SECONDS = 0.25


def disk_speed(file: Path) -> float | None:
    """Bytes/s at which blocks of 1 MiB of a file are read in a random order, past the cache.

    Reads for a quarter of a second. None if the system or the file system has no such reads, or the
    file is smaller than a block.
    """
    direct = getattr(os, "O_DIRECT", None)
    if direct is None:
        return None
    try:
        descriptor = os.open(file, os.O_RDONLY | direct)
    except OSError:
        return None
    try:
        return _speed(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _speed(descriptor: int) -> float | None:
    blocks, count = os.fstat(descriptor).st_size // _BLOCK, 0
    if not blocks:
        return None
    order = random.Random(0)
    began = time.perf_counter()
    with mmap.mmap(-1, _BLOCK) as memory:
        while (seconds := time.perf_counter() - began) < _SECONDS or not count:
            os.preadv(descriptor, [memory], order.randrange(blocks) * _BLOCK)
            count += 1
    return count * _BLOCK / seconds
