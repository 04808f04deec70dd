"""Return freed memory to the operating system, where the C library is glibc."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # of malloc.h


def share_free_memory() -> None:
    """Let all threads allocate from one heap. Call this before other threads start.

    Otherwise glibc makes up to eight heaps per core, and each keeps for reuse what its threads
    freed: a server of two small models grew for hours. Without glibc this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def free_memory() -> None:
    """Return the free pages of the heap to the system, which malloc would keep for reuse.

    Reading Gemma's tokenizer.json leaves 190 MB of them. Without glibc this does nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
