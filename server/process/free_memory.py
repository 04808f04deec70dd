"""Return freed memory to the operating system, and keep it free of holes."""

from __future__ import annotations

import ctypes

# Parameters of mallopt, in malloc.h, and their values.
_HEAPS = (-8, 1)
_OWN_PAGES = (-3, 1 << 21)  # bytes from which a block is not in the heap
_FREE_END = (-1, 1 << 24)  # free bytes at the end of the heap that are kept for reuse


def bound_free_memory() -> None:
    """Let malloc keep little of what is freed. Call this before other threads start.

    Otherwise glibc makes up to eight heaps per core, and each keeps for reuse what its threads
    freed; and blocks of up to 32 MiB leave holes in a heap: a server of two small models grew for
    hours. Without glibc this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in (_HEAPS, _OWN_PAGES, _FREE_END):
            mallopt(parameter, value)


def free_memory() -> None:
    """Return the free pages of the heap to the system, which malloc would keep for reuse.

    Reading Gemma's tokenizer.json leaves 190 MB of them. Without glibc this does nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
