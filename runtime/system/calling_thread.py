"""How Linux schedules a thread that waits for a compiled program."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def behind_workers() -> Iterator[None]:
    """Do not preempt a worker that wakes this thread in the block.

    An IREE worker wakes the thread that waits for a call, and then writes a flag for which that
    thread spins. If the thread takes the worker's core when it wakes, it spins until the system
    runs the worker again. Where every core has a worker, this took 0.5 ms of a step on average. A
    thread with the policy SCHED_BATCH does not take a core from another thread when it wakes.

    A policy other than the usual one is kept. Without these policies (Linux), and where a sandbox
    forbids it, this does nothing.
    """
    if sys.platform != "linux":
        yield
        return
    changed = _changed(os.SCHED_OTHER, os.SCHED_BATCH)
    try:
        yield
    finally:
        if changed:
            _changed(os.SCHED_BATCH, os.SCHED_OTHER)


def _changed(before: int, after: int) -> bool:
    """Change the policy of this thread, if it is `before`; whether the system did so."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(0) == before:
                os.sched_setscheduler(0, after, os.sched_param(0))
                return True
    return False
