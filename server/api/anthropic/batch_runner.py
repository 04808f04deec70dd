"""Answers the requests of message batches as `hearth batch` does, and stores their results."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.server.api.middleware.api_keys import OWNER
from hearthd.server.api.stored.state import State
from hearthd.server.batch_requests.app_target import AppTarget
from hearthd.server.batch_requests.batch_request import BatchRequest
from hearthd.server.batch_requests.runner import UNAVAILABLE, run
from hearthd.server.errors import Draining, NotStored, Starting, StorageFull, TooLargeToStore
from hearthd.server.fault_isolation import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

    from starlette.types import ASGIApp

    from hearthd.server.api.stored.store import Item, Store
    from hearthd.server.batch_requests.batch_request import Reply
    from hearthd.server.services.model_pool import ModelPool

log = logging.getLogger(__name__)

KIND = "message_batch"
PREFIX = "msgbatch_"
EXPIRY = timedelta(hours=24)
_PARALLEL = 2  # requests of all batches at a time: clients that wait need the other slots
_PAGE = 100  # results that are read at a time
_SUFFIX = "/result"  # of a result's id, after the id of its request
_WAIT = 1.0  # seconds before a server that starts is asked again
_WAIT_FOR_DISK = 30.0  # seconds before a result is stored again


def timestamp(moment: datetime | None = None) -> str:
    """A time, by default now, in the format of RFC 3339."""
    return (moment or datetime.now(UTC)).isoformat().replace("+00:00", "Z")


class BatchRunner:
    """Runs the message batches of all clients. Its methods are called by the event loop."""

    def __init__(self, app: ASGIApp, pool: ModelPool, store: Store, prefix: str) -> None:
        self._app = app
        self._pool = pool
        self._store = store
        self._path = f"{prefix}/v1/messages"
        self._background = BackgroundTasks()
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(_PARALLEL)

    def start(self, state: State, id_: str) -> None:
        """Run a stored batch in the background."""
        batch = StoredBatch(state, id_, self._path)
        target = _ServerTarget(self._app, self._pool, state.owner, self._turns)
        self._start(batch, batch.answer(target))

    def cancel(self, state: State, id_: str) -> None:
        """Cancel the requests of a batch that have no result, and end the batch soon."""
        batch = StoredBatch(state, id_, self._path)
        batch.cancel()
        self._start(batch, batch.end_after(self._tasks.pop(batch.key, None)))

    def resume(self) -> None:
        """Continue the batches that an end of the server interrupted."""
        for owner, record in reversed(self._store.records(PREFIX)):
            if record["processing_status"] != "ended":
                self.start(State(self._store, owner), record["id"])

    async def stop(self) -> None:
        """Stop all batches. Those in a file continue when the server starts again."""
        for task in list(self._tasks.values()):
            task.cancel()
        await self._background.wait()

    def _start(self, batch: StoredBatch, work: Any) -> None:
        task = self._background.start(f"batch {batch.id}", work)
        self._tasks[batch.key] = task

        def forget(_: object) -> None:
            if self._tasks.get(batch.key) is task:
                del self._tasks[batch.key]

        task.add_done_callback(forget)


class StoredBatch:
    """The requests and results of a batch, for the runner of all batches.

    Each method raises NotStored if the batch was deleted, or dropped to make room.
    """

    def __init__(self, state: State, id_: str, path: str = "") -> None:
        self.id = id_
        self.key = (state.owner, id_)
        self._state = state
        self._path = path
        self.answered: set[str] = set()

    @property
    def record(self) -> Item:
        """The body of the record."""
        return self._state.record(self.id, KIND)

    async def result_lines(self) -> AsyncIterator[bytes]:
        """The results so far as lines of JSON, in the order of the requests, page by page.

        The event loop only reads the pages: it has other answers to send.
        """
        after = 0
        while page := self._state.store.outputs_of_inputs(
            *self.key, suffix=_SUFFIX, after=after, limit=_PAGE
        ):
            after = page[-1][0]
            yield await asyncio.to_thread(_lines, [body for _, body in page])

    async def answer(self, target: AppTarget) -> None:
        """Answer the requests without a result, and end the batch.

        A batch whose results exceed the limit of the store is deleted.
        """
        try:
            await self._while_disk_is_full(lambda: self._answer(target))
        except TooLargeToStore:
            self._state.store.delete(*self.key)
            log.warning("batch %s was dropped before its end: raise --state-size", self.id)
        except NotStored:
            log.warning("batch %s was dropped before its end: raise --state-size", self.id)

    async def end_after(self, task: asyncio.Task[None] | None) -> None:
        """End the batch when the task that answers it has been cancelled."""
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await self._while_disk_is_full(self._end)

    async def _answer(self, target: AppTarget) -> None:
        async with self._state.store.claims.claim(self.id):
            self.answered = self._answered(self._items())
            if self.record["processing_status"] != "ended":  # by another server meanwhile
                await run(self, self, target)
                self.end()

    async def _end(self) -> None:
        self.end()

    async def _while_disk_is_full(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do work; wait and do it again if the disk is full."""
        while True:
            try:
                await work()
            except StorageFull as error:
                log.warning("batch %s waits for disk space: %s", self.id, error)
                await asyncio.sleep(_WAIT_FOR_DISK)
            else:
                return

    def remaining(self, answered: set[str]) -> Iterator[BatchRequest]:
        """The requests without a result, in order, until the batch is canceled or expires.

        A clock that is set meanwhile, as on a device that starts without the time, changes nothing.
        """
        lifetime = datetime.fromisoformat(self.record["expires_at"]) - datetime.now(UTC)
        deadline = time.monotonic() + min(lifetime, EXPIRY).total_seconds()
        for item in self._items():
            if "params" not in item or item["custom_id"] in answered:
                continue
            if self._is_canceling() or time.monotonic() >= deadline:
                return
            if self._has_result(item["custom_id"]):  # of another server with the same file
                continue
            body = json.dumps(item["params"]).encode()
            yield BatchRequest(custom_id=item["custom_id"], url=self._path, body=body)

    def append(self, custom_id: str, reply: Reply) -> None:
        """Store the reply to a request as its result, unless another server has stored one."""
        body = json.loads(reply.body)
        is_error = reply.status >= 400
        result = (
            {"type": "errored", "error": body}
            if is_error
            else {"type": "succeeded", "message": body}
        )
        with self._state.store.transaction():
            if not self._has_result(custom_id):
                self._state.put(self.id, self.record, outputs=[self._result(custom_id, result)])
        self.answered.add(custom_id)

    def cancel(self) -> None:
        """Note that the batch is being canceled."""
        fields = {"processing_status": "canceling", "cancel_initiated_at": timestamp()}
        self._state.put(self.id, {**self.record, **fields})

    def end(self) -> None:
        """End the batch: requests without a result are canceled, or have expired."""
        rest = {"type": "canceled" if self._is_canceling() else "expired"}
        items = self._items()
        # A request may have got its result between the cancellation and the end of its task.
        answered = self._answered(items)
        outputs = [
            self._result(item["custom_id"], rest)
            for item in items
            if "params" in item and item["custom_id"] not in answered
        ]
        results = [item for item in items if "result" in item]
        types = [item["result"]["type"] for item in (*results, *outputs)]
        counts = {
            name: types.count(name)
            for name in ("processing", "succeeded", "errored", "canceled", "expired")
        }
        ended = {"processing_status": "ended", "ended_at": timestamp(), "request_counts": counts}
        self._state.put(self.id, {**self.record, **ended}, outputs=outputs)

    def _items(self) -> list[Item]:
        return self._state.items(self.id)

    @staticmethod
    def _answered(items: Iterable[Item]) -> set[str]:
        return {item["custom_id"] for item in items if "result" in item}

    def _has_result(self, custom_id: str) -> bool:
        return self._state.store.item(self._state.owner, self._result_id(custom_id)) is not None

    def _is_canceling(self) -> bool:
        return bool(self.record["processing_status"] == "canceling")

    def _result(self, custom_id: str, result: dict[str, Any]) -> Item:
        return {"id": self._result_id(custom_id), "custom_id": custom_id, "result": result}

    def _result_id(self, custom_id: str) -> str:
        return f"{self.id}/{custom_id}{_SUFFIX}"


def _lines(bodies: Sequence[str]) -> bytes:
    """Lines of a file of results, from their records."""
    items = map(json.loads, bodies)
    lines = [{"custom_id": item["custom_id"], "result": item["result"]} for item in items]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


class _ServerTarget(AppTarget):
    """The server itself, for the batches of one API key. `turns` limits the requests of all."""

    answers_when_unavailable = True

    def __init__(self, app: ASGIApp, pool: ModelPool, owner: str, turns: asyncio.Semaphore) -> None:
        super().__init__(app, parallel=_PARALLEL, state={OWNER: owner})
        self._pool = pool
        self._turns = turns

    @override
    async def post(self, request: BatchRequest) -> Reply:
        """The reply, after the start of the server. During its end, wait to be cancelled."""
        while True:
            async with self._turns:
                reply = await super().post(request)
            waits = isinstance(self._pool.unavailable(), (Starting, Draining))
            if reply.status != UNAVAILABLE or not waits:
                return reply
            await asyncio.sleep(_WAIT)
