"""Calls of array functions: one thread that owns the runtime, and a queue of calls.

It knows no HTTP, no names and no shapes. A waiting call whose client disconnects never runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.server.engine.admission import Admission
from hearthd.server.engine.backend import Worker
from hearthd.server.engine.state import CallsState
from hearthd.server.errors import Draining, GenerationFailed
from hearthd.server.fault_isolation import STOPS

if TYPE_CHECKING:
    from concurrent.futures import Future

    from hearthd.runtime.array_bytes import Arrays
    from hearthd.runtime.array_functions import Functions
    from hearthd.server.errors import EngineStopped

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Called:
    """The outputs of a function, and the seconds that the call waited and ran."""

    outputs: Arrays
    queued: float
    seconds: float


class Calls(Worker):
    """Runs functions one after the other; at most `queue_limit` calls wait.

    `submit` and `drain` are called from one event loop.
    """

    def __init__(self, runtime: Functions, *, queue_limit: int) -> None:
        self._runtime = runtime
        self._admission = Admission(slots=1, queue_limit=queue_limit)
        self._pool = ThreadPoolExecutor(1, "calls")
        self._open = 0  # calls whose clients have not left

    @property
    @override
    def idle(self) -> bool:
        return not self._open

    @override
    def unavailable(self) -> Draining | EngineStopped | None:
        return self._admission.unavailable()

    @override
    def start(self) -> None:
        """The pool starts its thread for the first call."""

    def submit(self, function: str, inputs: Arrays) -> asyncio.Future[Called]:
        """Accept a call; raises QueueFull or Draining.

        Cancelling the future cancels the call, unless it runs. The future may raise
        GenerationFailed or, when the server stops before the call begins, Draining.
        """
        with self._admission.accept():
            future = self._pool.submit(self._call, function, inputs, time.monotonic())
        future.add_done_callback(self._finished)
        self._open += 1
        answer = asyncio.wrap_future(future)
        answer.add_done_callback(self._end)
        return answer

    def state(self) -> CallsState:
        """The running and waiting calls; for any thread."""
        return CallsState(
            slots=1,
            busy=min(1, self._admission.accepted),
            queued=self._admission.queued,
            queue_limit=self._admission.queue_limit,
        )

    @override
    def drain(self) -> None:
        self._admission.drain()

    @override
    def cancel(self) -> None:
        self.drain()
        self._admission.stop()
        self._pool.shutdown(wait=False)

    @override
    def close(self) -> None:
        self.cancel()
        self._pool.shutdown()

    def _call(self, function: str, inputs: Arrays, submitted: float) -> Called:
        """Runs in the pool's thread."""
        if self._admission.stopped:
            raise Draining("the server was shut down before the function was run")
        began = time.monotonic()
        try:
            outputs = self._runtime.run(function, inputs)
        except STOPS:
            raise
        except BaseException as error:
            log.exception("a function failed")
            raise GenerationFailed(f"{function} failed: {type(error).__name__}: {error}") from error
        return Called(outputs=outputs, queued=began - submitted, seconds=time.monotonic() - began)

    def _finished(self, future: Future[Called]) -> None:
        """Runs in the pool's thread, or in the one that cancels the call."""
        ran = not future.cancelled() and future.exception() is None
        self._admission.leave(future.result().seconds if ran else None)

    def _end(self, _answer: asyncio.Future[Called]) -> None:
        self._open -= 1
