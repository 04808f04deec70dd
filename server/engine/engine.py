"""The engine: one thread that owns the runtime, and the requests that it serves.

It knows token ids, slots and samplers. It knows no text (the text layer finds stop strings and
cancels the request) and no HTTP. The thread reads its inbox between two steps, so a cancelled
request costs at most one more step.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.engine.admission import Admission
from hearthd.server.engine.generation import EmbedRequest, Failed, Finished, Generation, Request
from hearthd.server.engine.inbox import Cancel, Inbox, Message, Stop, Submit, WriteAdapter
from hearthd.server.engine.prompt import ImageRows, Prompt
from hearthd.server.engine.scheduler import Scheduler
from hearthd.server.engine.sequence import new_sequence
from hearthd.server.engine.state import CacheState, EngineState, slot_states
from hearthd.server.engine.step import StepRunner
from hearthd.server.fault_isolation import contained
from hearthd.text.errors import InvalidRequest, NotSupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Sequence as SequenceOf

    from numpy.typing import NDArray

    from hearthd.runtime.interface import Runtime
    from hearthd.server.engine.drafting.drafts import Costs
    from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
    from hearthd.server.engine.sequence import Sequence
    from hearthd.server.errors import Draining, EngineStopped

log = logging.getLogger(__name__)


class Engine:
    """Serves requests with a runtime, as many at once as it has slots.

    `eos` are the ids that end an answer; at most `queue_limit` requests wait for a slot. Tokens are
    drafted with `costs`, by the number of sequences that the runtime verifies at once. With
    `exact_logits`, no logits are approximate. `image_row_bytes` of the rows of the latest images
    are kept. `submit` and `drain` are called from one event loop.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        eos: Iterable[int],
        queue_limit: int,
        cache: PrefixCache | None = None,
        costs: Mapping[int, Costs] | None = None,
        uses_drafter: bool = True,
        exact_logits: bool = False,
        image_row_bytes: int = 0,
    ) -> None:
        self._runtime = runtime
        self._eos = frozenset(eos)
        self._exact_logits = exact_logits
        self._cache = cache
        self._admission = Admission(slots=runtime.slots, queue_limit=queue_limit)
        self._scheduler = Scheduler(slots=runtime.slots)
        self._steps = StepRunner(
            runtime,
            self._scheduler,
            cache=cache,
            costs=costs or {},
            uses_drafter=uses_drafter and runtime.has_drafter,
            image_row_bytes=image_row_bytes,
            end=self._end,
        )
        self._inbox = Inbox()
        self._ids = itertools.count()
        self._open: set[int] = set()  # ids of the requests that their clients hold
        self._slots = slot_states(runtime.slots, ())
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def idle(self) -> bool:
        """Whether the clients of all accepted requests have left."""
        return not self._open

    @property
    def capacity(self) -> int:
        """How many requests may run or wait at a time."""
        return self._admission.capacity

    def unavailable(self) -> Draining | EngineStopped | None:
        """Why `submit` would reject every request now, or None."""
        return self._admission.unavailable()

    def start(self) -> None:
        """Start the thread; from now on the runtime belongs to it."""
        self._thread.start()

    def submit(self, request: Request | EmbedRequest) -> Generation:
        """Accept a request; raises QueueFull, Draining or EngineStopped.

        Raises NotSupported or InvalidRequest for rows of embeddings that the runtime cannot read.
        """
        if isinstance(request, Request):
            self._require_readable(request.prompt)
        id_ = next(self._ids)
        generation = Generation(lambda: self._leave(id_))
        sequence = new_sequence(
            id_,
            request,
            context=self._runtime.context,
            eos=self._eos,
            deliver=generation.deliver,
            block_keys=self._block_keys(request),
            exact_logits=self._exact_logits,
        )
        with self._admission.accept():
            self._inbox.put(Submit(sequence))
        self._open.add(id_)
        return generation

    async def write_adapter(self, place: int, factors: SequenceOf[NDArray[Any]]) -> None:
        """Fill a place that no request uses, between two steps; raises Draining, EngineStopped."""
        written: Future[None] = Future()
        with self._admission.handing_over():
            self._inbox.put(WriteAdapter(place, factors, written))
        await asyncio.wrap_future(written)

    def state(self) -> EngineState:
        """The state of the engine after the latest step or end of a request; for any thread."""
        return EngineState(
            slots=self._slots,
            queued=self._admission.queued,
            queue_limit=self._admission.queue_limit,
            cache=CacheState() if self._cache is None else self._cache.state(),
        )

    def cached_blocks(self) -> tuple[bytes, ...]:
        """The keys of the blocks that the prefix cache has in memory; for any thread."""
        return () if self._cache is None else self._cache.keys()

    def drain(self) -> None:
        """Reject new requests from now on; the accepted ones are served to their end."""
        self._admission.drain()

    def cancel(self) -> None:
        """Cancel all requests after the current step, and end the thread."""
        self.drain()
        self._inbox.put(Stop())

    def close(self) -> None:
        """As `cancel`; returns when the thread has ended."""
        self.cancel()
        if self._thread.is_alive():
            self._thread.join()

    def _require_readable(self, prompt: Prompt) -> None:
        """Raise NotSupported or InvalidRequest for rows of embeddings that cannot be read."""
        if not prompt.row_segments:
            return
        if not self._runtime.reads_rows:
            raise NotSupported("prompt: this bundle has no entry point that reads images or audio")
        if prompt.tokens[-1] == NO_TOKEN:
            raise InvalidRequest(
                field="prompt", got="rows of embeddings", expected="a token at its end"
            )
        for segment in prompt.row_segments:
            if isinstance(segment, ImageRows):
                continue
            if segment.rows.shape[1] != self._runtime.row_width:
                raise InvalidRequest(
                    field="prompt",
                    got=f"rows of width {segment.rows.shape[1]}",
                    expected=f"rows of width {self._runtime.row_width}",
                )

    def _block_keys(self, request: Request | EmbedRequest) -> tuple[bytes, ...]:
        if self._cache is None or isinstance(request, EmbedRequest):
            return ()
        return request.block_keys(self._runtime.chunk)

    def _leave(self, id_: int) -> None:
        self._open.discard(id_)
        self._inbox.put(Cancel(id_))

    # The methods below run in the engine's thread.

    def _run(self) -> None:
        last: Finished | Failed = Failed("the engine has stopped by an internal error")
        try:
            while self._receive(wait=self._scheduler.idle):
                self._end_expired()
                self._steps.run()
                self._update_slots()
            last = Finished("cancelled")
        except BaseException:
            log.exception("the engine stops: internal error")
        self._admission.stop()
        self._receive(wait=False)
        for sequence in self._scheduler.sequences():
            with contained("the end of a request"):
                self._end(sequence, last)

    def _receive(self, *, wait: bool) -> bool:
        """Handle the messages that have come; False to stop."""
        going_on = True
        for message in self._inbox.take(wait=wait):
            if isinstance(message, Stop):
                going_on = False
            else:
                with contained("a message to the engine"):
                    try:
                        self._handle(message)
                    except BaseException:
                        if isinstance(message, Submit):  # its client waits for an event
                            self._end(message.sequence, Failed("the engine cannot take a request"))
                        raise
        return going_on

    def _handle(self, message: Message) -> None:
        match message:
            case Submit(sequence):
                self._scheduler.add(sequence)
            case Cancel(id_):
                if (running := self._scheduler.find(id_)) is not None:
                    self._end(running, Finished("cancelled"))
            case WriteAdapter(place, factors, written):
                if not written.set_running_or_notify_cancel():
                    return  # its client has left
                try:
                    self._runtime.write_adapter(place, factors)
                except BaseException as error:
                    written.set_exception(error)
                else:
                    written.set_result(None)

    def _end_expired(self) -> None:
        """End the sequences whose deadline has passed, with a slot or without."""
        now = time.monotonic()
        for sequence in self._scheduler.sequences():
            if sequence.deadline is not None and sequence.deadline <= now:
                self._end(sequence, Finished("timeout"))

    def _end(self, sequence: Sequence, event: Finished | Failed) -> None:
        """Free the slot, then tell the client, which may submit or read the state at once."""
        self._scheduler.remove(sequence)
        self._update_slots()
        admitted_at = sequence.admitted_at
        self._admission.leave(None if admitted_at is None else time.monotonic() - admitted_at)
        sequence.end(event)

    def _update_slots(self) -> None:
        self._slots = slot_states(self._runtime.slots, self._scheduler.running())
