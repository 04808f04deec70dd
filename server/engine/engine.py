"""The engine: one thread that owns the runtime, and requests that come and go.

It knows token ids, slots and samplers. It knows no text (stop strings are found above it, and the
finder cancels) and no HTTP. Between two steps the thread looks into its inbox, so a cancelled
request costs at most one more step.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from server.engine.generation import Failed, Finished, Generation, Request, Started, Token
from server.engine.sampler import Sample, Sampler
from server.engine.scheduler import Scheduler, Work
from server.engine.state import CacheState, EngineState, SlotState
from server.errors import Draining, EngineStopped, QueueFull

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from server.runtime.base import Runtime

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Submit:
    id: int
    request: Request
    generation: Generation


@dataclass(frozen=True)
class _Cancel:
    id: int


@dataclass(frozen=True)
class _Stop:
    pass


@dataclass(kw_only=True)
class _Live:
    """What the thread keeps of a request: its sampler and where the events go."""

    generation: Generation
    sampler: Sampler
    started: bool = False


class Engine:
    """Serves requests with a runtime, as many at once as it has slots.

    `eos` are the ids that end an answer; `queue_limit` requests may wait for a slot. `submit` and
    `drain` are called from one event loop.
    """

    def __init__(self, runtime: Runtime, *, eos: Iterable[int], queue_limit: int) -> None:
        self._runtime = runtime
        self._queue_limit = queue_limit
        self._ends = frozenset(eos)
        self._scheduler = Scheduler(
            slots=runtime.slots, context=runtime.context, chunk=runtime.chunk, eos=self._ends
        )
        self._live: dict[int, _Live] = {}
        self._inbox: queue.SimpleQueue[_Submit | _Cancel | _Stop] = queue.SimpleQueue()
        self._ids = itertools.count()
        self._open: set[int] = set()
        self._unfinished: set[int] = set()
        self._draining = False
        self._stopped = False
        # Held to submit and to stop, so that nothing enters the inbox of a thread that has ended.
        self._entrance = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def idle(self) -> bool:
        """Whether every accepted request has been left by its client."""
        return not self._open

    def unavailable(self) -> Draining | EngineStopped | None:
        """Why `submit` would refuse now, or None."""
        if self._draining:
            return Draining("the server is shutting down and takes no new requests")
        if self._stopped:
            return EngineStopped("the engine has stopped: see the server's log and restart it")
        return None

    def start(self) -> None:
        """Start the thread; from now on the runtime belongs to it."""
        self._thread.start()

    def submit(self, request: Request) -> Generation:
        """Accept a request; raises QueueFull, Draining or EngineStopped."""
        id_ = next(self._ids)
        generation = Generation(lambda: self._leave(id_))
        with self._entrance:
            if problem := self.unavailable():
                raise problem
            queued = max(0, len(self._unfinished) - self._runtime.slots)
            if len(self._unfinished) >= self._runtime.slots + self._queue_limit:
                raise QueueFull(queued=queued, limit=self._queue_limit, retry_after=1)
            self._unfinished.add(id_)
            self._inbox.put(_Submit(id_, request, generation))
        self._open.add(id_)
        return generation

    def state(self) -> EngineState:
        """What the engine is doing now; for any thread."""
        free = SlotState(
            id=0,
            request=None,
            prompt_tokens=0,
            cached_tokens=0,
            read_tokens=0,
            generated_tokens=0,
        )
        return EngineState(
            slots=tuple(replace(free, id=slot) for slot in range(self._runtime.slots)),
            queued=max(0, len(self._unfinished) - self._runtime.slots),
            queue_limit=self._queue_limit,
            cache=CacheState(),
        )

    def drain(self) -> None:
        """Refuse new requests from now on; the accepted ones are served to their end."""
        self._draining = True

    def close(self) -> None:
        """Cancel what is left and end the thread; returns when it has ended."""
        self.drain()
        if self._thread.is_alive():
            self._inbox.put(_Stop())
            self._thread.join()

    def _leave(self, id_: int) -> None:
        self._open.discard(id_)
        self._inbox.put(_Cancel(id_))

    # From here on everything runs in the engine's thread.

    def _run(self) -> None:
        last: Finished | Failed = Finished("cancelled")
        try:
            while self._receive():
                self._step()
        except Exception:
            log.exception("the engine ends by an error of its own")
            last = Failed("the engine has stopped by an internal error")
        with self._entrance:
            self._stopped = True
        self._read_inbox()
        for id_ in list(self._live):
            self._end(id_, last)

    def _receive(self) -> bool:
        """Read the inbox, waiting when there is nothing else to do. False means to stop."""
        if self._scheduler.idle and not self._take(self._inbox.get()):
            return False
        return self._read_inbox()

    def _read_inbox(self) -> bool:
        with contextlib.suppress(queue.Empty):
            while self._take(self._inbox.get_nowait()):
                pass
            return False
        return True

    def _take(self, message: _Submit | _Cancel | _Stop) -> bool:
        match message:
            case _Submit(id_, request, generation):
                self._live[id_] = _Live(
                    generation=generation,
                    sampler=Sampler(
                        request.sampling,
                        seed=request.seed,
                        prompt=request.prompt,
                        ends=self._ends,
                        constraint=request.constraint,
                    ),
                )
                self._scheduler.add(id_, request.prompt, request.max_tokens)
            case _Cancel(id_):
                if id_ in self._live:
                    self._end(id_, Finished("cancelled"))
            case _Stop():
                return False
        return True

    def _step(self) -> None:
        plan = self._scheduler.plan()
        for work in plan:
            self._announce(self._live[work.request])
        samples: dict[int, Sample] = {}
        for call in self._calls(plan):
            samples |= self._run_call(call)
        tokens = {id_: sample.token for id_, sample in samples.items()}
        last = {id_ for id_, sample in samples.items() if sample.last}
        for outcome in self._scheduler.commit(tokens, last):
            live = self._live[outcome.request]
            if outcome.token is not None:
                logprobs = samples[outcome.request].logprobs
                live.generation.deliver(Token(outcome.token, logprobs, time.monotonic()))
            if outcome.finish is not None:
                self._end(outcome.request, Finished(outcome.finish))

    def _calls(self, plan: tuple[Work, ...]) -> Iterator[tuple[Work, ...]]:
        """The work of each call of the runtime: chunks go alone, sampled tokens together."""
        yield from ((work,) for work in plan if not work.sample)
        sampled = [work for work in plan if work.sample]
        for first in range(0, len(sampled), self._runtime.batch):
            yield tuple(sampled[first : first + self._runtime.batch])

    def _run_call(self, call: tuple[Work, ...]) -> dict[int, Sample]:
        """Run the model and sample, by request. An error ends the requests that it concerns."""
        try:
            if not call[0].sample:
                (work,) = call
                self._runtime.prefill(work.slot, work.tokens, work.start)
                return {}
            rows = self._runtime.decode(
                [work.slot for work in call],
                [work.tokens[0] for work in call],
                [work.start for work in call],
            )
        except Exception as error:
            log.exception("a step of the model failed")
            for work in call:
                self._fail(work.request, error)
            return {}
        samples = {}
        for work, row in zip(call, rows, strict=True):
            try:
                samples[work.request] = self._live[work.request].sampler.sample(row)
            except Exception as error:
                log.exception("a token could not be sampled")
                self._fail(work.request, error)
        return samples

    def _announce(self, live: _Live) -> None:
        if not live.started:
            live.started = True
            live.generation.deliver(Started(time.monotonic(), 0))

    def _fail(self, id_: int, error: Exception) -> None:
        self._end(id_, Failed(f"a step of the model failed: {type(error).__name__}: {error}"))

    def _end(self, id_: int, event: Finished | Failed) -> None:
        self._scheduler.end(id_)
        with self._entrance:
            self._unfinished.discard(id_)
        self._live.pop(id_).generation.deliver(event)
