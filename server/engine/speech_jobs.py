"""Transcriptions in steps: one thread that owns the runtime, on which requests take turns.

It knows no HTTP and no text. A job is a generator: each of its steps runs in the thread, and
between two steps other jobs run.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from typing_extensions import override

from hearthd.server.engine.admission import Admission
from hearthd.server.engine.backend import Worker
from hearthd.server.engine.state import CallsState
from hearthd.server.errors import Draining, GenerationFailed
from hearthd.server.fault_isolation import STOPS
from hearthd.text.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from hearthd.runtime.speech_model import Listener
    from hearthd.server.errors import EngineStopped

log = logging.getLogger(__name__)

T = TypeVar("T")
# The steps of a job on a listener, which end early when the event is set.
Steps: TypeAlias = "Callable[[Listener, threading.Event], Iterator[T]]"


class SpeechJobs(Worker):
    """Runs the steps of jobs one after the other; at most `queue_limit` jobs wait.

    `submit` and `drain` are called from one event loop.
    """

    def __init__(self, listener: Listener, *, queue_limit: int) -> None:
        self.listener = listener
        self.admission = Admission(slots=1, queue_limit=queue_limit)
        self.pool = ThreadPoolExecutor(1, "speech")
        self.jobs: set[SpeechJob[object]] = set()

    @property
    @override
    def idle(self) -> bool:
        return not self.jobs

    @override
    def unavailable(self) -> Draining | EngineStopped | None:
        return self.admission.unavailable()

    @override
    def start(self) -> None:
        """The pool starts its thread for the first job."""

    def submit(self, steps: Steps[T]) -> SpeechJob[T]:
        """Accept a job, which the caller closes; raises QueueFull or Draining."""
        with self.admission.accept():
            job = SpeechJob(self, steps)
            self.jobs.add(job)  # type: ignore[arg-type]  # a set of jobs of any result
        return job

    def state(self) -> CallsState:
        """The running and waiting jobs; for any thread."""
        return CallsState(
            slots=1,
            busy=min(1, self.admission.accepted),
            queued=self.admission.queued,
            queue_limit=self.admission.queue_limit,
        )

    @override
    def drain(self) -> None:
        self.admission.drain()

    @override
    def cancel(self) -> None:
        self.drain()
        self.admission.stop()
        for job in list(self.jobs):
            job.stopped.set()
        self.pool.shutdown(wait=False)

    @override
    def close(self) -> None:
        self.cancel()
        self.pool.shutdown()


class SpeechJob(Generic[T]):
    """An accepted job, which has its slot until it is closed.

    queued, seconds  that it waited for its first step, and that its steps took
    """

    def __init__(self, jobs: SpeechJobs, steps: Steps[T]) -> None:
        self.stopped = threading.Event()
        self.queued = self.seconds = 0.0
        self._jobs = jobs
        self._steps = steps(jobs.listener, self.stopped)

    def close(self) -> None:
        """Stop the job, if it runs, and free its slot."""
        self.stopped.set()
        if self in self._jobs.jobs:
            self._jobs.jobs.remove(self)  # type: ignore[arg-type]
            self._jobs.admission.leave(self.seconds or None)

    async def results(self) -> AsyncIterator[T]:
        """The results of the steps.

        Raises the RequestError of a step, GenerationFailed, or Draining when the server stops.
        """
        submitted = time.monotonic()
        while True:
            try:
                step = self._jobs.pool.submit(self._step, submitted)
            except RuntimeError as error:  # the pool was shut down
                raise _stopped() from error
            result = await asyncio.wrap_future(step)
            if result is None:
                return
            yield result

    def _step(self, submitted: float) -> T | None:
        """Runs in the pool's thread; None at the end."""
        began = time.monotonic()
        self.queued = self.queued or began - submitted
        if self._jobs.admission.stopped:
            raise _stopped()
        try:
            return next(self._steps, None)
        except STOPS:
            raise
        except RequestError:
            raise
        except BaseException as error:
            if self.stopped.is_set():
                raise _stopped() from error
            log.exception("a transcription failed")
            raise GenerationFailed(
                f"the transcription failed: {type(error).__name__}: {error}"
            ) from error
        finally:
            self.seconds += time.monotonic() - began


def _stopped() -> Draining:
    return Draining("the server was shut down before the sound was transcribed")
