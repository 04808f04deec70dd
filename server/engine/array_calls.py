"""Calls of functions on arrays: one thread that owns the runtime, and requests that wait for it.

It knows no HTTP, no names and no shapes. A call that is waiting when its client goes never runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.engine.engine import retry_after
from server.engine.state import CallsState
from server.errors import Draining, GenerationFailed, QueueFull

if TYPE_CHECKING:
    from concurrent.futures import Future

    from runtime.array_functions import Arrays, Functions

log = logging.getLogger(__name__)

# Calls whose time tells how long the next ones will take.
_REMEMBERED = 32


@dataclass(frozen=True, kw_only=True)
class Called:
    """What a function gave, and the seconds that the call waited and ran."""

    outputs: Arrays
    queued: float
    seconds: float


class Calls:
    """Runs functions one after the other; `queue_limit` calls may wait.

    `submit` and `drain` are called from one event loop.
    """

    def __init__(self, runtime: Functions, *, queue_limit: int) -> None:
        self._runtime = runtime
        self._queue_limit = queue_limit
        self._pool = ThreadPoolExecutor(1, "calls")
        self._open = 0
        self._unfinished = 0
        self._served: deque[float] = deque(maxlen=_REMEMBERED)
        self._draining = False
        self._stopped = False
        # Held to count, and to submit and to stop, so that nothing is given to a closed pool.
        self._entrance = threading.Lock()

    @property
    def idle(self) -> bool:
        """As Worker.idle."""
        return not self._open

    def unavailable(self) -> Draining | None:
        """As Worker.unavailable."""
        if self._draining:
            return Draining("the server is shutting down and takes no new requests")
        return None

    def start(self) -> None:
        """As Worker.start: the pool makes its thread for the first call."""

    def submit(self, function: str, inputs: Arrays) -> asyncio.Future[Called]:
        """Accept a call; raises QueueFull or Draining.

        To cancel the future cancels the call, unless it runs. The future may raise GenerationFailed
        or, when the server stops before the call begins, Draining.
        """
        with self._entrance:
            if problem := self.unavailable():
                raise problem
            if self._unfinished > self._queue_limit:
                wait = retry_after(self._served, queued=self._queued, slots=1)
                raise QueueFull(queued=self._queued, limit=self._queue_limit, retry_after=wait)
            self._unfinished += 1
            future = self._pool.submit(self._call, function, inputs, time.monotonic())
        future.add_done_callback(self._finished)
        self._open += 1
        answer = asyncio.wrap_future(future)
        answer.add_done_callback(self._left)
        return answer

    def state(self) -> CallsState:
        """What is being done; for any thread."""
        return CallsState(
            busy=self._unfinished > 0, queued=self._queued, queue_limit=self._queue_limit
        )

    def drain(self) -> None:
        """As Worker.drain."""
        self._draining = True

    def cancel(self) -> None:
        """As Worker.cancel."""
        with self._entrance:
            self._draining = self._stopped = True
            self._pool.shutdown(wait=False)

    def close(self) -> None:
        """As Worker.close."""
        self.cancel()
        self._pool.shutdown()

    @property
    def _queued(self) -> int:
        return max(0, self._unfinished - 1)

    def _call(self, function: str, inputs: Arrays, submitted: float) -> Called:
        """Runs in the pool's thread."""
        if self._stopped:
            raise Draining("the server was shut down before the function was run")
        began = time.monotonic()
        try:
            outputs = self._runtime.run(function, inputs)
        except Exception as error:
            log.exception("a function failed")
            raise GenerationFailed(f"{function} failed: {type(error).__name__}: {error}") from error
        seconds = time.monotonic() - began
        self._served.append(seconds)
        return Called(outputs=outputs, queued=began - submitted, seconds=seconds)

    def _finished(self, _future: Future[Called]) -> None:
        with self._entrance:
            self._unfinished -= 1

    def _left(self, _answer: asyncio.Future[Called]) -> None:
        self._open -= 1
