"""The engine of a front: model replicas in other processes.

A request whose replica dies is sent to another one, which computes the same tokens again: those
that the client has are compared and not delivered twice. The client sees a pause.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from typing import TYPE_CHECKING

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from server.cluster.delivery import Delivery
from server.cluster.model_replica import TryAgain
from server.cluster.work import with_age, work_of
from server.engine.admission import Admission
from server.engine.generation import Failed, Finished, Generation
from server.engine.state import CacheState, EngineState, merged_slots

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ray.serve.handle import DeploymentHandle

    from server.cluster.bundles import Bundle
    from server.cluster.routers import KnownReplicas
    from server.cluster.work import Work
    from server.engine.generation import EmbedRequest, Request
    from server.errors import Draining, EngineStopped

log = logging.getLogger(__name__)

# A request that was running on so many replicas when they were lost fails: it may be the cause.
_MAX_LOSSES = 5
_RETRY_SECONDS = 0.02
_LOST_SECONDS = 0.1  # doubled with each loss: the router learns of a lost node some time later


class RemoteEngine:
    """Serves requests for one bundle by model replicas; a LanguageBackend.

    `router` returns the router of the handle, once there is one. `queue_limit` requests may wait.
    Everything is called from one event loop.
    """

    def __init__(
        self,
        handle: DeploymentHandle[Any],
        bundle: Bundle,
        *,
        queue_limit: int,
        router: Callable[[], KnownReplicas | None],
    ) -> None:
        self._bundle = bundle
        self._handle = handle.options(stream=True, multiplexed_model_id=bundle.id)
        self._router = router
        self._admission = Admission(slots=0, queue_limit=queue_limit)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        """As Worker.idle."""
        return not self._tasks

    @property
    def capacity(self) -> int:
        """As Engine.capacity, with the replicas that run now."""
        self._count_slots()
        return self._admission.capacity

    def unavailable(self) -> Draining | EngineStopped | None:
        """As Engine.unavailable."""
        return self._admission.unavailable()

    def start(self) -> None:
        """As Worker.start: the replicas have their own engines."""

    def submit(self, request: Request | EmbedRequest) -> Generation:
        """As Engine.submit."""
        self._count_slots()
        with self._admission.accept():
            generation = Generation(lambda: _cancel(task))
        # A context of its own: Ray takes requests of one context for the same request.
        task = asyncio.get_running_loop().create_task(
            self._serve(request, Delivery(generation.deliver)), context=contextvars.Context()
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return generation

    def state(self) -> EngineState:
        """The state of all replicas as they reported it, and of the queue of this front."""
        router = self._router()
        engines = [report.engine for report in router.reports(self._bundle.id)] if router else []
        return EngineState(
            slots=merged_slots(engine.slots for engine in engines),
            queued=self._admission.queued,
            queue_limit=self._admission.queue_limit,
            cache=sum((engine.cache for engine in engines), CacheState()),
        )

    def drain(self) -> None:
        """As Engine.drain."""
        self._admission.drain()

    def cancel(self) -> None:
        """As Engine.cancel."""
        self.drain()
        for task in self._tasks:
            task.cancel()

    def close(self) -> None:
        """As Engine.close; the tasks end with the event loop."""
        self._admission.stop()

    def _count_slots(self) -> None:
        router = self._router()
        self._admission.slots = self._bundle.slots * len(router.curr_replicas) if router else 0

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
        except Exception as error:
            log.exception("a request failed")
            delivery.take(Failed(f"a model replica failed: {type(error).__name__}"))
        finally:
            at = delivery.started_at
            self._admission.leave(None if at is None else time.monotonic() - at)

    async def _deliver_all(self, request: Request | EmbedRequest, delivery: Delivery) -> None:
        """Send the request to replicas until one has served it to its end."""
        work = work_of(request, chunk=self._bundle.chunk)
        losses = 0
        while (problem := await self._try(work, delivery)) is not None:
            delivery.restart()
            if isinstance(problem, TryAgain | BackPressureError):
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            losses += 1
            reason = str(problem).partition("\n")[0]
            log.warning("a replica was lost; its request goes to another one: %s", reason)
            if losses == _MAX_LOSSES:
                delivery.take(Failed(f"{losses} model replicas were lost during this request"))
                return
            await asyncio.sleep(_LOST_SECONDS * 2**losses)

    async def _try(self, work: Work, delivery: Delivery) -> Exception | None:
        """Deliver the events of one replica; returns None at the end, or why it did not end."""
        stream = self._handle.generate.remote(work, self._bundle)
        try:
            async for events in stream:
                if events[-1] == Finished("cancelled"):
                    return TryAgain("the replica was stopped")
                if delivery.take_all(map(with_age, events)):
                    return None
        except TryAgain as error:
            return error
        except RayTaskError:
            raise
        except (RayError, BackPressureError, DeploymentUnavailableError) as error:
            problem: Exception = error
            return problem
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                return TryAgain("Ray cancelled the request")
            stream.cancel()  # otherwise the replica would finish the answer
            raise
        return TryAgain("the replica ended the stream early")


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
