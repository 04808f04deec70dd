"""Return freed memory to the operating system, and keep it free of holes."""

from __future__ import annotations

import gc
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hearthd.runtime.system.operating_system import c_function

if TYPE_CHECKING:
    from collections.abc import Iterator

# Parameters of mallopt, in malloc.h, and their values.
_HEAPS = (-8, 1)
_OWN_PAGES = (-3, 1 << 21)  # bytes from which a block is not in the heap
_FREE_END = (-1, 1 << 24)  # free bytes at the end of the heap that are kept for reuse

_MAX_TURN = 10.0  # seconds

_alone = threading.Lock()


def bound_free_memory() -> None:
    """Bound the freed memory that malloc keeps. Call this before other threads start.

    Otherwise glibc makes up to eight heaps per core, and each keeps for reuse what its threads
    freed; and blocks of up to 32 MiB leave holes in a heap: a server of two small models grew for
    hours. Without glibc this does nothing.
    """
    mallopt = c_function("mallopt")
    if mallopt is not None:
        for parameter, value in (_HEAPS, _OWN_PAGES, _FREE_END):
            mallopt(parameter, value)


def free_memory() -> None:
    """Return the free pages of the heap to the system, which malloc would keep for reuse.

    Reading Gemma's tokenizer.json leaves 190 MB of them. Without glibc this does nothing.
    """
    trim = c_function("malloc_trim")
    if trim is not None:
        trim(0)


@contextmanager
def no_other_thread() -> Iterator[None]:
    """Let no other thread run Python code for up to 10 s, unless this thread waits.

    For code that creates a million objects for a moment. Python returns an arena of 1 MiB to the
    system when it has no object. So an object that another thread creates meanwhile and keeps would
    hold an arena. So would an object that Python keeps for reuse; a garbage collection frees those.
    It runs once, at the end: its searches of the growing objects would take half of their time.
    """
    with _alone:  # the whole process has one interval
        interval, collects = sys.getswitchinterval(), gc.isenabled()
        sys.setswitchinterval(_MAX_TURN)
        gc.disable()
        try:
            time.sleep(2 * interval)  # waiting threads read the new interval
            yield
        finally:
            _free_reused_objects()
            if collects:
                gc.enable()
            sys.setswitchinterval(interval)


def _free_reused_objects() -> None:
    """Free the objects that Python keeps for reuse, without a search for garbage."""
    frozen = gc.get_freeze_count()  # a server has frozen what it loaded
    if not frozen:
        gc.freeze()
    gc.collect()
    if not frozen:
        gc.unfreeze()
