"""What a front sends to model replicas, and what it does when a replica is lost.

A request whose replica dies is sent to another one, which computes the same again.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from typing_extensions import override

from hearthd.server.cluster.model_replica import TryAgain
from hearthd.server.cluster.routers import router_of
from hearthd.server.engine.admission import Admission
from hearthd.server.engine.backend import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from ray.serve.handle import DeploymentHandle, DeploymentResponse, DeploymentResponseGenerator

    from hearthd.runtime.checks.self_test import Verdict
    from hearthd.server.cluster.bundles import Bundle
    from hearthd.server.cluster.cached_blocks import BundleStats
    from hearthd.server.errors import Draining, EngineStopped

log = logging.getLogger(__name__)

# A request that was running on this number of replicas when they were lost may be the cause.
MAX_LOSSES = 5
_RETRY_SECONDS = 0.02
_LOST_SECONDS = 0.1  # doubled with each loss: the router learns of a lost node some time later
_ASK_AGAIN_SECONDS = 1.0


class RemoteWorker(Worker):
    """Sends requests for one bundle to model replicas; a Worker.

    `queue_limit` requests may wait. Created in the event loop from which everything is called,
    except `self_test`.
    """

    def __init__(self, handle: DeploymentHandle[Any], bundle: Bundle, *, queue_limit: int) -> None:
        self._bundle = bundle
        self._handle = handle.options(multiplexed_model_id=bundle.id)
        self._admission = Admission(slots=0, queue_limit=queue_limit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    @property
    @override
    def idle(self) -> bool:
        return not self._tasks

    @override
    def unavailable(self) -> Draining | EngineStopped | None:
        return self._admission.unavailable()

    @override
    def start(self) -> None:
        """The replicas have their own workers."""

    @override
    def drain(self) -> None:
        self._admission.drain()

    @override
    def cancel(self) -> None:
        self.drain()
        for task in self._tasks:
            task.cancel()

    @override
    def close(self) -> None:
        """The tasks end with the event loop."""
        self._admission.stop()

    def self_test(self) -> Verdict:
        """The verdict of the first replica that has one, for the thread of the self-test."""
        return asyncio.run_coroutine_threadsafe(self._first_verdict(), self._loop).result()

    def _reports(self) -> list[BundleStats]:
        """What the replicas have reported of the bundle."""
        router = router_of(self._handle.deployment_name, self._handle.app_name)
        return router.reports(self._bundle.id) if router else []

    def _count_slots(self) -> None:
        router = router_of(self._handle.deployment_name, self._handle.app_name)
        self._admission.slots = self._bundle.slots * len(router.curr_replicas) if router else 0

    def _begin(self, request: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Serve a request that was accepted."""
        # A context of its own: Ray takes requests of one context for the same request.
        task = self._loop.create_task(request, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _until_served(self, attempt: Callable[[], Awaitable[Exception | None]]) -> bool:
        """Repeat an attempt until it returns no problem; returns whether one did.

        It fails for good when MAX_LOSSES replicas were lost.
        """
        losses = 0
        while (problem := await attempt()) is not None:
            if isinstance(problem, TryAgain | BackPressureError):
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            losses += 1
            reason = str(problem).partition("\n")[0]
            log.warning("a replica was lost; its request goes to another one: %s", reason)
            if losses == MAX_LOSSES:
                return False
            await asyncio.sleep(_LOST_SECONDS * 2**losses)
        return True

    async def _first_verdict(self) -> Verdict:
        """Waits as long as no replica has passed the self-test."""
        while True:
            try:
                verdict: Verdict = await self._handle.verdict.remote(self._bundle)
            except Exception as error:
                log.warning("no replica has passed the self-test yet: %s", error)
                if self.unavailable():
                    raise
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
            else:
                return verdict


async def problem_of(
    reading: Awaitable[None], response: DeploymentResponse[Any] | DeploymentResponseGenerator[Any]
) -> Exception | None:
    """Read a replica's response; returns why another replica must answer, or None.

    Raises the errors of the replica's code, and CancelledError when the client has left.
    """
    try:
        await reading
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
        response.cancel()  # otherwise the replica would finish the answer
        raise
    return None
