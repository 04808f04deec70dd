"""How fast this machine reads memory, which limits decoding. Linux only."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np

_READ = 1 << 30  # bytes read to measure the bandwidth, far more than the caches hold


def physical_cores() -> int:
    """The number of cores that this process may use; two threads of one core count once."""
    allowed = os.sched_getaffinity(0)
    topology = Path("/sys/devices/system/cpu")
    siblings = {
        (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text("utf-8")
        for cpu in allowed
        if (topology / f"cpu{cpu}/topology/thread_siblings_list").exists()
    }
    return len(siblings) or len(allowed)


def read_bandwidth(threads: int, size: int = _READ) -> float:
    """GB/s at which `threads` threads read `size` bytes of memory, the best of 5.

    Each thread computes the maximum of its share: NumPy does so with vector instructions and
    without the GIL, three times as fast from a cache as memory can be read.
    """
    parts = np.array_split(np.ones(size // 8, np.uint64), threads)

    def once() -> float:
        began = time.perf_counter()
        workers = [threading.Thread(target=block.max) for block in parts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return size / (time.perf_counter() - began) / 1e9

    return max(once() for _ in range(5))
