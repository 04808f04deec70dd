"""Errors that end the work in which they occur, and nothing else.

Neither the process nor another request may end by an error of one connection, request, timer,
reload, background task or thread. Work that nothing waits for runs in `contained` or as one of the
`BackgroundTasks`. Work that something waits for hands every error over to it: it catches
BaseException except STOPS, because a panic of a Rust library (tokenizers, llguidance) is no
Exception.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

log = logging.getLogger(__name__)

# These end a task, a generator or the process on purpose.
STOPS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
_REPEAT_SECONDS = 60.0

_reported: dict[tuple[str, type[BaseException]], float] = {}


def report(work: str, error: BaseException) -> None:
    """Log an error with its traceback; the same error of the same work at most once a minute."""
    now, key = time.monotonic(), (work, type(error))
    if now - _reported.get(key, -math.inf) >= _REPEAT_SECONDS:
        _reported[key] = now
        log.error("%s failed; the server goes on", work, exc_info=error)


@contextlib.contextmanager
def contained(work: str) -> Iterator[None]:
    """Report an error of this block, and go on after it. `work` names the block in the log."""
    try:
        yield
    except STOPS:
        raise
    except BaseException as error:
        report(work, error)


class BackgroundTasks:
    """Tasks that run until they end, whether or not something waits for them.

    The errors of all are reported. A task still raises its error where it is awaited.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task; `work` names it in the log."""
        task = asyncio.create_task(coroutine, name=work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self) -> None:
        """Wait until the tasks that run now have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            report(task.get_name(), error)
