"""The array functions of a front: model replicas in other processes.

A call whose replica dies is sent to another one: functions keep no state.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.server.cluster.remote_worker import MAX_LOSSES, RemoteWorker, problem_of
from hearthd.server.cluster.work import FunctionCall
from hearthd.server.engine.generation import Failed
from hearthd.server.engine.state import CallsState
from hearthd.server.errors import Draining, GenerationFailed
from hearthd.server.fault_isolation import STOPS
from hearthd.server.services.array_service import CallsBackend

if TYPE_CHECKING:
    from typing import Any

    from ray.serve.handle import DeploymentResponse

    from hearthd.runtime.array_bytes import Arrays
    from hearthd.server.engine.array_calls import Called

log = logging.getLogger(__name__)


class RemoteCalls(RemoteWorker, CallsBackend):
    """Runs array functions in model replicas; a CallsBackend."""

    @override
    def submit(self, function: str, inputs: Arrays) -> asyncio.Future[Called]:
        self._count_slots()
        answer: asyncio.Future[Called] = self._loop.create_future()
        with self._admission.accept():
            call = FunctionCall(function=function, inputs=inputs)
        task = self._begin(self._serve(call, answer))
        answer.add_done_callback(lambda _: task.cancel())  # the client has left, or it has ended
        return answer

    @override
    def state(self) -> CallsState:
        """The state of all replicas as they reported it, and of the queue of this front."""
        states = [report.state for report in self._reports()]
        calls = [state for state in states if isinstance(state, CallsState)]
        return CallsState(
            slots=sum(state.slots for state in calls),
            busy=sum(state.busy for state in calls),
            queued=self._admission.queued,
            queue_limit=self._admission.queue_limit,
        )

    async def _serve(self, call: FunctionCall, answer: asyncio.Future[Called]) -> None:
        began = time.monotonic()
        seconds: float | None = None
        try:
            result = await self._result(call)
            if isinstance(result, Failed):
                raise GenerationFailed(result.message)
            seconds = result.seconds
            waited = time.monotonic() - began - seconds
            _settle(answer, dataclasses.replace(result, queued=waited))
        except asyncio.CancelledError:
            _settle(answer, Draining("the server stopped before the answer was complete"))
            raise
        except GenerationFailed as error:
            _settle(answer, error)
        except STOPS:
            raise
        except BaseException as error:
            log.exception("a call failed")
            _settle(answer, GenerationFailed(f"a model replica failed: {type(error).__name__}"))
        finally:
            self._admission.leave(seconds)

    async def _result(self, call: FunctionCall) -> Called | Failed:
        """Send the call to replicas until one has run it."""
        results: list[Called | Failed] = []

        async def attempt() -> Exception | None:
            response = self._handle.call.remote(call, self._bundle)
            return await problem_of(_append(results, response), response)

        if not await self._until_served(attempt):
            return Failed(f"{MAX_LOSSES} model replicas were lost during this call")
        return results[-1]


async def _append(results: list[Called | Failed], response: DeploymentResponse[Any]) -> None:
    results.append(await response)


def _settle(answer: asyncio.Future[Called], result: Called | Exception) -> None:
    """Complete the answer, unless its client has left."""
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)
