"""Return the pages of mapped files to the operating system."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

_MAPS = Path("/proc/self/maps")


def release_pages(file: Path) -> None:
    """Release the pages of all read-only mappings in this process of a file, a resolved path.

    A page that is read later is mapped again. Without /proc/self/maps (Linux) this does nothing.
    """
    if not _MAPS.exists():
        return
    path = str(file).replace("\n", "\\012")  # as the kernel writes it
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in _MAPS.read_text(encoding="utf-8", errors="surrogateescape").split("\n"):
        # Addresses, permissions, offset, device, inode, path: see proc_pid_maps(5).
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or "w" in fields[1] or fields[5] != path:
            continue
        start, end = (int(address, 16) for address in fields[0].split("-"))
        madvise(start, end - start, mmap.MADV_DONTNEED)
