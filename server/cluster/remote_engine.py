"""The engine of a front: model replicas in other processes.

A request whose replica dies is sent to another one, which computes the same tokens again: those
that the client has are compared and not delivered twice. The client sees a pause.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.server.cluster.delivery import Delivery
from hearthd.server.cluster.model_replica import TryAgain
from hearthd.server.cluster.remote_worker import MAX_LOSSES, RemoteWorker, problem_of
from hearthd.server.cluster.work import require_tokens, with_age, work_of
from hearthd.server.engine.backend import Backend
from hearthd.server.engine.generation import Failed, Finished, Generation
from hearthd.server.engine.state import CacheState, EngineState, merged_slots
from hearthd.server.fault_isolation import STOPS

if TYPE_CHECKING:
    from typing import Any

    from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

    from hearthd.server.cluster.work import Work
    from hearthd.server.engine.generation import EmbedRequest, Request

log = logging.getLogger(__name__)


class RemoteEngine(RemoteWorker, Backend):
    """Serves requests for a language model by model replicas; a LanguageBackend."""

    @property
    @override
    def capacity(self) -> int:
        """Counts the replicas that run now."""
        self._count_slots()
        return self._admission.capacity

    @override
    def submit(self, request: Request | EmbedRequest) -> Generation:
        require_tokens(request)
        self._count_slots()
        with self._admission.accept():
            generation = Generation(lambda: _cancel(task))
        task = self._begin(self._serve(request, Delivery(generation.deliver)))
        return generation

    @override
    def state(self) -> EngineState:
        """The state of all replicas as they reported it, and of the queue of this front."""
        states = [report.state for report in self._reports()]
        engines = [state for state in states if isinstance(state, EngineState)]
        return EngineState(
            slots=merged_slots(engine.slots for engine in engines),
            queued=self._admission.queued,
            queue_limit=self._admission.queue_limit,
            cache=sum((engine.cache for engine in engines), CacheState()),
        )

    @functools.cached_property
    def _generate(self) -> DeploymentHandle[Any]:
        return self._handle.options(stream=True).generate

    async def _serve(self, request: Request | EmbedRequest, delivery: Delivery) -> None:
        try:
            # The event loop has the clock of time.monotonic.
            async with asyncio.timeout_at(request.deadline):
                await self._deliver_all(request, delivery)
        except TimeoutError:
            delivery.take(Finished("timeout"))
        except asyncio.CancelledError:
            delivery.take(Finished("cancelled"))
            raise
        except STOPS:
            raise
        except BaseException as error:
            log.exception("a request failed")
            delivery.take(Failed(f"a model replica failed: {type(error).__name__}"))
        finally:
            at = delivery.started_at
            self._admission.leave(None if at is None else time.monotonic() - at)

    async def _deliver_all(self, request: Request | EmbedRequest, delivery: Delivery) -> None:
        """Send the request to replicas until one has served it to its end."""
        work = work_of(request, chunk=self._bundle.chunk)
        if not await self._until_served(lambda: self._try(work, delivery)):
            delivery.take(Failed(f"{MAX_LOSSES} model replicas were lost during this request"))

    async def _try(self, work: Work, delivery: Delivery) -> Exception | None:
        """Deliver the events of one replica; returns None at the end, or why it did not end."""
        delivery.restart()
        stream = self._generate.remote(work, self._bundle)
        return await problem_of(_deliver(stream, delivery), stream)


async def _deliver(stream: DeploymentResponseGenerator[Any], delivery: Delivery) -> None:
    """Deliver the events of a replica; raises TryAgain if it did not serve the request."""
    async for events in stream:
        if events[-1] == Finished("cancelled"):
            raise TryAgain("the replica was stopped")
        if delivery.take_all(map(with_age, events)):
            return
    raise TryAgain("the replica ended the stream early")


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
