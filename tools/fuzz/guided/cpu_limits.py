"""Limits in CPU time, which neither a stopped process nor a loaded machine exceeds."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from types import FrameType

_T = TypeVar("_T")


class CpuTimeExceeded(BaseException):
    """Code took more CPU time than it may. Not an Exception: code under test catches those."""


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise CpuTimeExceeded when the process's threads take more than `seconds` of CPU time.

    Only for the main thread. It is raised between two Python instructions, and again after as many
    seconds if somebody caught it.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise CpuTimeExceeded(f"more than {seconds:g} s of CPU time")

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


async def within_ticks(work: Coroutine[Any, Any, _T], ticks: int, seconds: float = 1.0) -> _T:
    """The result of `work`, which may take `ticks` of `seconds` each; TimeoutError after that.

    A process that is stopped for any time loses one tick.
    """
    task = asyncio.ensure_future(work)
    for _ in range(ticks):
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return task.result()
    task.cancel()
    raise TimeoutError(f"no result after {ticks} ticks of {seconds:g} s")
