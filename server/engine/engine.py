"""The engine: one thread that owns the runtime, and requests that come and go.

It knows token ids, slots and samplers. It knows no text (stop strings are found above it, and the
finder cancels) and no HTTP. Between two steps the thread looks into its inbox, so a cancelled
request costs at most one more step.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from runtime.kv_blocks import block_keys
from server.engine.generation import (
    Embedded,
    EmbedRequest,
    Failed,
    Finished,
    Generation,
    Request,
    Started,
    Token,
)
from server.engine.prompt_lookup import Lookup, worth_checking
from server.engine.scheduler import Scheduler, Work
from server.engine.state import CacheState, EngineState, SlotState
from server.errors import Draining, EngineStopped, QueueFull
from server.sampling.constraint import ConstraintFailed
from server.sampling.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from numpy.typing import NDArray

    from runtime.interface import Runtime
    from server.engine.prefix_cache import PrefixCache
    from server.engine.prompt_lookup import Costs

log = logging.getLogger(__name__)

# Requests whose time in a slot tells how long the next ones will take.
_REMEMBERED = 32


@dataclass(frozen=True)
class _Cancel:
    id: int


@dataclass(frozen=True)
class _Stop:
    pass


@dataclass(kw_only=True)
class _Live:
    """What the thread keeps of a request.

    sampler   of the answer's tokens; None if there are none
    keys      of its prompt's blocks in the prefix cache; none if it does not use the cache
    admitted  when it got a slot; None while it waits
    cached    tokens of the prompt that came out of the prefix cache
    total     of an embedding: the sum of the hidden states by now
    lookup    guesses of the answer's next tokens; None if nothing is guessed
    drafted   guesses that the model has checked
    accepted  guesses that were right
    """

    request: Request | EmbedRequest
    generation: Generation
    sampler: Sampler | None = None
    keys: tuple[bytes, ...] = ()
    admitted: float | None = None
    cached: int = 0
    started: bool = False
    total: NDArray[np.float32] | None = None
    lookup: Lookup | None = None
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class _Submit:
    id: int
    live: _Live


class Engine:
    """Serves requests with a runtime, as many at once as it has slots.

    `eos` are the ids that end an answer; `queue_limit` requests may wait for a slot. With `costs`,
    of the runtime's sizes, tokens are guessed. `submit` and `drain` are called from one event loop.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        eos: Iterable[int],
        queue_limit: int,
        cache: PrefixCache | None = None,
        costs: Costs | None = None,
        exact_logits: bool = False,
    ) -> None:
        self._runtime = runtime
        self._exact_logits = exact_logits
        self._cache = cache
        self._costs = costs
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
        self._served: deque[float] = deque(maxlen=_REMEMBERED)  # seconds in a slot
        self._slots = tuple(_free(slot) for slot in range(runtime.slots))
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

    def submit(self, request: Request | EmbedRequest) -> Generation:
        """Accept a request; raises QueueFull, Draining or EngineStopped."""
        id_ = next(self._ids)
        live = self._prepare(request, Generation(lambda: self._leave(id_)))
        with self._entrance:
            if problem := self.unavailable():
                raise problem
            if len(self._unfinished) >= self._runtime.slots + self._queue_limit:
                queued = self._queued
                wait = retry_after(self._served, queued=queued, slots=self._runtime.slots)
                raise QueueFull(queued=queued, limit=self._queue_limit, retry_after=wait)
            self._unfinished.add(id_)
            self._inbox.put(_Submit(id_, live))
        self._open.add(id_)
        return live.generation

    def state(self) -> EngineState:
        """What the engine is doing; for any thread. The slots are as after the latest step."""
        return EngineState(
            slots=self._slots,
            queued=self._queued,
            queue_limit=self._queue_limit,
            cache=CacheState() if self._cache is None else self._cache.state(),
        )

    def drain(self) -> None:
        """Refuse new requests from now on; the accepted ones are served to their end."""
        self._draining = True

    def cancel(self) -> None:
        """Cancel what is left, after the step that is running, and end the thread."""
        self.drain()
        self._inbox.put(_Stop())

    def close(self) -> None:
        """As `cancel`; returns when the thread has ended."""
        self.cancel()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def _queued(self) -> int:
        """Requests without a slot: who comes when a slot is free gets it in the next step."""
        return max(0, len(self._unfinished) - self._runtime.slots)

    def _prepare(self, request: Request | EmbedRequest, generation: Generation) -> _Live:
        if isinstance(request, EmbedRequest):
            return _Live(request=request, generation=generation)
        cached = self._cache is not None and request.cache_prompt
        return _Live(
            request=request,
            generation=generation,
            sampler=Sampler(
                request.sampling,
                seed=request.seed,
                prompt=request.prompt,
                ends=self._ends,
                constraint=request.constraint,
            ),
            # The last token of a prompt is never read in a chunk.
            keys=block_keys(request.prompt[:-1], self._runtime.chunk) if cached else (),
        )

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
        self._slots = self._slot_states()

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
            case _Submit(id_, live):
                self._live[id_] = live
                if isinstance(live.request, EmbedRequest):
                    self._scheduler.add_text(id_, live.request.prompt)
                else:
                    self._scheduler.add(id_, live.request.prompt, live.request.max_tokens)
            case _Cancel(id_):
                if id_ in self._live:
                    self._end(id_, Finished("cancelled"))
            case _Stop():
                return False
        return True

    def _step(self) -> None:
        """One token of every sequence that is ready, and one chunk of one prompt."""
        self._end_what_is_late()
        for id_ in self._scheduler.admit():
            self._admit(self._live[id_])
        for chunk in self._scheduler.reading():
            with self._failing((chunk,)):
                self._restore(chunk)
        ready = self._scheduler.ready()
        if guesses := self._guess(ready):
            self._verify(ready[0], guesses)
        else:
            for first in range(0, len(ready), self._runtime.batch):
                self._decode(ready[first : first + self._runtime.batch])
        for chunk in self._scheduler.reading()[:1]:
            with self._failing((chunk,)):
                if isinstance(self._live[chunk.request].request, EmbedRequest):
                    self._embed(chunk)
                else:
                    self._read(chunk)
        self._slots = self._slot_states()

    def _admit(self, live: _Live) -> None:
        live.admitted = time.monotonic()
        if self._costs is not None and live.sampler is not None:
            live.lookup = Lookup(live.request.prompt)

    def _end_what_is_late(self) -> None:
        now = time.monotonic()
        for id_, live in list(self._live.items()):
            if live.request.deadline is not None and live.request.deadline <= now:
                self._end(id_, Finished("timeout"))

    def _restore(self, chunk: Work) -> None:
        """Take what the cache has of a prompt, from its next chunk on.

        Asked before every step, and not only when the request begins: of several prompts that
        begin alike, each may read what the others then find.
        """
        live = self._live[chunk.request]
        if self._cache is None or not live.keys:
            return
        blocks = self._cache.find(live.keys, chunk.start // self._runtime.chunk)
        if blocks:
            self._runtime.restore(chunk.slot, chunk.start, blocks)
            tokens = len(blocks) * self._runtime.chunk
            self._scheduler.read(chunk.request, tokens)
            live.cached += tokens

    def _read(self, chunk: Work) -> None:
        """Read a chunk of a prompt, and keep it if it is a whole one."""
        self._runtime.prefill(chunk.slot, chunk.tokens, chunk.start)
        self._scheduler.read(chunk.request, len(chunk.tokens))
        stop = chunk.start + len(chunk.tokens)
        keys = self._live[chunk.request].keys[: stop // self._runtime.chunk]
        if self._cache is not None and keys and len(chunk.tokens) == self._runtime.chunk:
            self._cache.add(keys, self._runtime.save(chunk.slot, chunk.start, stop))

    def _embed(self, chunk: Work) -> None:
        """Read a chunk of a text; after the last one, deliver its mean."""
        live = self._live[chunk.request]
        states = self._runtime.embed(chunk.slot, chunk.tokens, chunk.start)
        live.total = states if live.total is None else live.total + states
        self._scheduler.read(chunk.request, len(chunk.tokens))
        if chunk.start + len(chunk.tokens) == len(live.request.prompt):
            self._announce(live)
            live.generation.deliver(Embedded(live.total / np.float32(len(live.request.prompt))))
            self._end(chunk.request, Finished("stop"))

    def _decode(self, batch: tuple[Work, ...]) -> None:
        """Read a token of each sequence, and give each its next one."""
        rows: list[tuple[Work, NDArray[np.float32]]] = []
        with self._failing(batch):
            began = time.perf_counter()
            rows = self._rows(batch)
            if self._costs is not None and len(batch) == 1:
                self._costs.add(1, time.perf_counter() - began)
        for work, row in rows:
            self._advance(work, row, None)

    def _guess(self, ready: tuple[Work, ...]) -> tuple[int, ...]:
        """What is worth checking: of a sequence alone, since in a batch tokens cost less."""
        if self._costs is None or len(ready) != 1:
            return ()
        request = ready[0].request
        lookup = self._live[request].lookup
        assert lookup is not None, "whoever is ready has been admitted"
        return worth_checking(lookup, self._costs, self._scheduler.room(request) - 1)

    def _verify(self, work: Work, guesses: tuple[int, ...]) -> None:
        """Read a token and the guesses behind it, and go on for as long as they come true."""
        assert self._costs is not None, "no guesses without costs"
        self._live[work.request].drafted += len(guesses)
        with self._failing((work,)):
            began = time.perf_counter()
            tokens = (*work.tokens, *guesses)
            rows = self._runtime.verify(work.slot, tokens, work.start, exact=self._exact(work))
            self._costs.add(1 + len(guesses), time.perf_counter() - began)
        if work.request not in self._live:
            return
        for row, guess in zip(rows, (*guesses, None), strict=True):
            if not self._advance(work, row, guess):
                break

    def _advance(self, work: Work, logits: NDArray[np.float32], guess: int | None) -> bool:
        """Sample the next token by logits (V,) and deliver it.

        Returns whether it is as guessed, and the request goes on.
        """
        live = self._live[work.request]
        assert live.sampler is not None, "a text that is only read is never ready"
        with self._failing((work,)):
            sample = live.sampler.sample(logits)
        if work.request not in self._live:
            return False
        last = {work.request} if sample.last else set()
        (outcome,) = self._scheduler.commit({work.request: sample.token}, last)
        right = sample.token == guess
        live.accepted += right
        self._announce(live)
        if outcome.token is not None:
            counts = (live.drafted, live.accepted)
            live.generation.deliver(
                Token(outcome.token, sample.logprobs, time.monotonic(), *counts)
            )
        if live.lookup is not None:
            live.lookup.append(sample.token)
        if outcome.finish is not None:
            self._end(work.request, Finished(outcome.finish))
        return right and outcome.finish is None

    def _rows(self, batch: tuple[Work, ...]) -> list[tuple[Work, NDArray[np.float32]]]:
        """Read a token of each sequence; the logits (V,) of those for which that does not fail.

        When a batch cannot be read, as there is no memory for one of its slots, each is read by
        itself: that gives the same bits, and to read a token again changes nothing.
        """
        try:
            rows = self._runtime.decode(
                [work.slot for work in batch],
                [work.tokens[0] for work in batch],
                [work.start for work in batch],
                [self._exact(work) for work in batch],
            )
            return list(zip(batch, rows, strict=True))
        except Exception:
            if len(batch) == 1:
                raise
            log.warning("a step of %d sequences failed: each is read by itself", len(batch))
        alone: list[tuple[Work, NDArray[np.float32]]] = []
        for work in batch:
            with self._failing((work,)):
                alone += self._rows((work,))
        return alone

    def _exact(self, work: Work) -> bool:
        """Whether a sequence is to have those logits exactly that are far below the best."""
        sampler = self._live[work.request].sampler
        return self._exact_logits or (sampler is not None and sampler.exact)

    @contextlib.contextmanager
    def _failing(self, works: tuple[Work, ...]) -> Iterator[None]:
        """An error in here ends the requests of these works, and no other."""
        try:
            yield
            return
        except ConstraintFailed as error:
            event = Failed(str(error), by_rules=True)
        except Exception as error:
            log.exception("a step of the model failed")
            event = Failed(f"a step of the model failed: {type(error).__name__}: {error}")
        for work in works:
            if work.request in self._live:
                self._end(work.request, event)

    def _announce(self, live: _Live) -> None:
        if live.admitted is not None and not live.started:
            live.started = True
            live.generation.deliver(Started(live.admitted, live.cached))

    def _end(self, id_: int, event: Finished | Failed) -> None:
        self._scheduler.end(id_)
        live = self._live.pop(id_)
        self._announce(live)
        with self._entrance:
            self._unfinished.discard(id_)
            if live.admitted is not None:
                self._served.append(time.monotonic() - live.admitted)
        live.generation.deliver(event)

    def _slot_states(self) -> tuple[SlotState, ...]:
        states = [_free(slot) for slot in range(self._runtime.slots)]
        for progress in self._scheduler.progress():
            states[progress.slot] = SlotState(
                id=progress.slot,
                request=progress.request,
                prompt_tokens=progress.prompt,
                cached_tokens=self._live[progress.request].cached,
                read_tokens=progress.read,
                generated_tokens=progress.generated,
            )
        return tuple(states)


def retry_after(served: Collection[float], *, queued: int, slots: int) -> int:
    """Seconds until those who wait are likely to have been served, at least 1.

    `served` are the seconds that recent requests had a slot.
    """
    if not served:
        return 1
    mean = sum(served) / len(served)
    return max(1, math.ceil(mean * queued / slots))


def _free(slot: int) -> SlotState:
    return SlotState(
        id=slot,
        request=None,
        prompt_tokens=0,
        cached_tokens=0,
        read_tokens=0,
        generated_tokens=0,
    )
