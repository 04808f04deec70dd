"""The models that a server offers; some are loaded.

A server of one model has a pool of one. A request names a model, and gets a lease of its service.
If the model is not loaded, the request waits: loads run one at a time, in the order of their first
requests. To make room, a load unloads the least recently used models, those without requests first.
A model with requests finishes these; later requests for it wait until it is loaded again. So models
that are all flooded take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from typing import TYPE_CHECKING

from hearthd.bundle import REQUEST_MEMORY, ArraysManifest
from hearthd.server.errors import (
    Draining,
    ModelNotFound,
    NotLoaded,
    NotReloaded,
    QueueFull,
    Unavailable,
)
from hearthd.server.fault_isolation import STOPS, BackgroundTasks, contained
from hearthd.server.metrics import MeasuredModel, ServerMetrics
from hearthd.server.process.connection_memory import ConnectionMemory, memory_of_connections
from hearthd.server.services.model_kind import WORDS, kinds_of
from hearthd.server.services.model_room import ModelRoom, is_unused
from hearthd.server.services.pending_load import PendingLoad
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from hearthd.server.services.deployment import Deployment, Lease, Reload
    from hearthd.server.services.model_kind import Kind

log = logging.getLogger(__name__)

LATEST = "latest"  # the tag of a model, or of no adapter, as in Ollama's names
_RETRY_SECONDS = 10  # a request after this time tries again to load a model that failed


class ModelPool:
    """The deployments of a server, by name. Everything must be called from one event loop.

    The first deployment that can be opened and the `pinned` ones are loaded when the server starts,
    and the pinned ones are never unloaded.

    memory, reserved_memory, models_max   limits: see ModelRoom
    autoload        load a model for a request; otherwise only for `load`
    max_body_bytes  maximum size of a request body
    queue_limit     requests that may wait for one model to be loaded
    connection_memory   what the connections of the server may take
    find            the models that there are now, for `rescan`; may raise NotReloaded
    """

    def __init__(
        self,
        deployments: Iterable[Deployment],
        *,
        memory: int | None = None,
        reserved_memory: int = 0,
        models_max: int = 0,
        autoload: bool = True,
        max_body_bytes: int = 10 * 2**20,
        pinned: Collection[str] = (),
        queue_limit: int = 64,
        connection_memory: ConnectionMemory | None = None,
        find: Callable[[], Mapping[str, Callable[[], Deployment]]] | None = None,
    ) -> None:
        self._deployments = {deployment.name: deployment for deployment in deployments}
        self.metrics = ServerMetrics(self._measured)
        self.max_body_bytes = max_body_bytes
        self.models_max = models_max
        self.autoload = autoload
        self.connection_memory = connection_memory or memory_of_connections(is_limited=False)
        self._room = ModelRoom(memory, reserved_memory, models_max)
        self._queue_limit = queue_limit
        self._find = find
        self._loads: dict[Deployment, PendingLoad] = {}
        self._turn = asyncio.Lock()  # loads one at a time, in order
        self._unloads = BackgroundTasks()  # `stop` waits for them
        self._draining = False
        for name in pinned:
            if name not in self._deployments:
                raise ModelNotFound(name, self._deployments)
            self._deployments[name].pinned = True

    def __iter__(self) -> Iterator[Deployment]:
        return iter(list(self._deployments.values()))  # `rescan` changes them

    def __len__(self) -> int:
        return len(self._deployments)

    def kinds(self) -> set[Kind]:
        """The kinds of the models; one whose manifest cannot be read may be a language model."""
        return {kind for deployment in self for kind in kinds_of(deployment.manifest)}

    @property
    def request_memory(self) -> int:
        """Bytes that the bodies of all requests together may take, whichever models are loaded."""
        manifests = (deployment.manifest for deployment in self)
        added = (
            manifest.added_request_memory(self.max_body_bytes)
            for manifest in manifests
            if isinstance(manifest, ArraysManifest)
        )
        return REQUEST_MEMORY + max(added, default=0)

    def find(self, name: str, *kinds: Kind) -> Deployment:
        """The model of this name; the first one for an empty name, the only one for any name.

        `kinds` are the expected kinds of models, if that matters. Raises ModelNotFound,
        and InvalidRequest for a model of another kind.
        """
        expected = [
            deployment
            for deployment in self
            if not kinds or kinds_of(deployment.manifest).intersection(kinds)
        ]
        any_name = not name or len(self) == 1
        if expected and any_name:
            return expected[0]
        candidate = next(iter(self), None) if any_name else self._named(name)
        if candidate is None:
            raise ModelNotFound(name, self._deployments)
        if candidate not in expected:
            words = " or ".join(WORDS[bundle_kind] for bundle_kind in kinds)
            raise InvalidRequest(field="model", got=candidate.name, expected=words)
        return candidate

    def _named(self, name: str) -> Deployment | None:
        untagged = name.removesuffix(f":{LATEST}")
        return self._deployments.get(name) or self._deployments.get(untagged)

    def find_adapted(self, name: str, *kinds: Kind) -> tuple[Deployment, str]:
        """The model and the adapter, if any, of a name `model:adapter`; raises what `find` does."""
        model, _, adapter = name.rpartition(":")
        if adapter and name not in self._deployments and model in self._deployments:
            return self.find(model, *kinds), adapter
        return self.find(name, *kinds), ""

    def is_loading(self, deployment: Deployment) -> bool:
        """Whether the model is being loaded or waits for its turn to be, or is being tested."""
        service = deployment.current
        return deployment in self._loads or (service is not None and service.verdict is None)

    def unavailable(self) -> Unavailable | None:
        """Why the server accepts no requests now, or None: the problem of the first model.

        A server with several models accepts requests as long as one of them does.
        """
        problems = [self.problem(deployment) for deployment in self]
        return problems[0] if all(problems) else None

    def problem(self, deployment: Deployment) -> Unavailable | None:
        """Why requests for a model are rejected now, or None."""
        if self._draining:
            return Draining("the server is shutting down and takes no new requests")
        if deployment.current is not None:
            return deployment.current.unavailable()
        return NotLoaded(deployment.failure) if deployment.failure else None

    @property
    def idle(self) -> bool:
        """Whether no accepted request is running or waiting."""
        waiting = any(load.waiting for load in self._loads.values())
        return not waiting and all(deployment.idle for deployment in self)

    def open(self) -> None:
        """Open the models to load at the start, before the event loop runs.

        A bundle that cannot be opened is marked as failed, and the next one is opened. Raises the
        first one's error if none can be opened.
        """
        errors: list[Exception] = []
        for deployment in self:
            if deployment.pinned or not any(deployment.current for deployment in self):
                try:
                    deployment.open(reserved=self._room.reserved(self, deployment))
                except Exception as error:
                    errors.append(error)
        if errors and all(deployment.failure for deployment in self):
            raise errors[0]
        for deployment in self:
            if deployment.failure:
                log.error("%s", deployment.failure)

    async def start(self) -> None:
        """Finish the self-tests of the opened models."""
        for deployment in self:
            with contained(f"the start of {deployment.name}"):
                await deployment.start()

    def lease_now(self, deployment: Deployment) -> Lease | None:
        """The model's service for one request, or None if the request must wait for it."""
        if deployment in self._loads or deployment.current is None or deployment.claimed:
            return None
        return deployment.lease()

    async def lease(self, deployment: Deployment) -> Lease:
        """The model's service for one request; loads the model if needed.

        Raises NotLoaded, Draining, InvalidRequest if the pool loads no models for requests, or
        QueueFull if too many requests wait for this model.
        """
        return await self._lease(deployment, loads=self.autoload)

    async def load(self, deployment: Deployment) -> None:
        """Load a model unless it is loaded; raises what `lease` raises."""
        deployment.failed_at = 0.0
        (await self._lease(deployment, loads=True)).close()

    async def _lease(self, deployment: Deployment, *, loads: bool) -> Lease:
        if lease := self.lease_now(deployment):
            return lease
        load = self._loads.get(deployment)
        if self._draining:
            raise Draining("the server is shutting down and takes no new requests")
        is_recent = time.monotonic() - deployment.failed_at < _RETRY_SECONDS
        if load is None and deployment.failure and is_recent:
            raise NotLoaded(deployment.failure)
        if load is None and not loads:
            expected = "a loaded model: POST /models/load loads it"
            raise InvalidRequest(field="model", got=deployment.name, expected=expected)
        if load is not None and len(load.waiting) >= self._queue_limit:
            raise QueueFull(queued=len(load.waiting), limit=self._queue_limit, retry_after=1)
        return await self._wait(deployment, load or self._begin(deployment))

    async def unload(self, deployment: Deployment) -> None:
        """Unload a model when its requests are answered; raises InvalidRequest if it is pinned."""
        if deployment.pinned:
            raise InvalidRequest(
                field="model", got=deployment.name, expected="a model that is not pinned"
            )
        await deployment.unload()

    async def reload(self, deployment: Deployment) -> Reload:
        """Reload a model, or load it; raises NotReloaded."""
        async with self._turn:
            await self._room.make(self, deployment)
            return await deployment.reload(reserved=self._room.reserved(self, deployment))

    async def reload_all(self) -> None:
        """Reload all models that are loaded or failed; the log and /health report errors."""
        for deployment in self:
            if deployment.current or deployment.failure:
                with (
                    contained(f"the reload of {deployment.name}"),
                    contextlib.suppress(NotReloaded),
                ):
                    await self.reload(deployment)

    async def rescan(self) -> None:
        """Offer the new bundles, and stop offering the deleted ones.

        A model whose bundle was deleted answers its running requests first. Failed models are tried
        again at their next request. Raises NotReloaded.
        """
        if self._find is None:
            return
        bundles = await asyncio.to_thread(self._find)
        for name, make in bundles.items():
            if name not in self._deployments:
                self._deployments[name] = make()
            self._deployments[name].failed_at = 0.0
        gone = [model for model in self if not model.pinned and model.name not in bundles]
        if len(gone) == len(self):
            raise NotReloaded("no bundle is left; the models stay as they are")
        idle = [model.idle for model in gone]
        removals = [self._unloads.start(f"removing {m.name}", self._remove(m)) for m in gone]
        await asyncio.gather(*itertools.compress(removals, idle))

    def tick(self) -> None:
        """Check files and unload idle models. Called about once a second."""
        for deployment in self:
            with contained(f"the check of the files of {deployment.name}"):
                deployment.check_files()
            if not self._draining and is_unused(deployment):
                log.info("%s was not used for %s s", deployment.name, deployment.idle_timeout)
                self._unloads.start(f"the unload of {deployment.name}", deployment.unload())

    def drain(self) -> None:
        """Reject new requests, loads and reloads; finish the accepted requests."""
        self._draining = True
        for deployment, load in list(self._loads.items()):
            load.fail(Draining, "the server is shutting down")
            self._abandon(deployment, load)
        for deployment in self:
            with contained(f"the drain of {deployment.name}"):
                deployment.drain()

    def cancel(self) -> None:
        """Cancel the accepted requests: see Service.cancel."""
        for deployment in self:
            with contained(f"the cancel of {deployment.name}"):
                deployment.cancel()

    async def stop(self) -> None:
        """Cancel the accepted requests and end all workers. A load that is running fails."""
        self.drain()
        self.cancel()
        tasks = [load.task for load in self._loads.values() if load.task]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._unloads.wait()
        for deployment in self:
            with contained(f"the stop of {deployment.name}"):
                await deployment.stop()

    async def _remove(self, deployment: Deployment) -> None:
        """Unload a model and forget it, unless a request loads it again."""
        await deployment.unload()
        if deployment.current is None and deployment not in self._loads:
            del self._deployments[deployment.name]

    def _begin(self, deployment: Deployment) -> PendingLoad:
        load = self._loads[deployment] = PendingLoad()
        load.task = asyncio.create_task(self._run(deployment, load))
        return load

    async def _wait(self, deployment: Deployment, load: PendingLoad) -> Lease:
        """Wait for a load; the lease is taken when the load ends, before another load can begin."""
        waiter: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        load.waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().close()
            raise
        finally:
            if waiter in load.waiting:  # its client has left
                load.waiting.remove(waiter)
                if not load.waiting:
                    self._abandon(deployment, load)

    def _abandon(self, deployment: Deployment, load: PendingLoad) -> None:
        """No request waits for a load any more: end it, unless it has begun to open the bundle."""
        if load.task is not None and not load.opening:
            load.task.cancel()
            self._end(deployment, load)

    def _end(self, deployment: Deployment, load: PendingLoad) -> None:
        if self._loads.get(deployment) is load:
            del self._loads[deployment]

    async def _run(self, deployment: Deployment, load: PendingLoad) -> None:
        """Load a model when it is its turn, and give its requests their leases."""
        try:
            while True:
                await deployment.settled()
                async with self._turn:
                    if not deployment.claimed:
                        await self._load(deployment, load)
                        return
        except STOPS:
            raise
        except BaseException as error:
            load.fail(NotLoaded, str(error) or type(error).__name__)
        finally:
            self._end(deployment, load)

    async def _load(self, deployment: Deployment, load: PendingLoad) -> None:
        await self._room.make(self, deployment)
        load.opening = True
        await deployment.load(reserved=self._room.reserved(self, deployment))
        load.succeed(deployment)

    def _measured(self) -> Iterator[MeasuredModel]:
        for deployment in self:
            load = self._loads.get(deployment)
            yield MeasuredModel(
                name=deployment.name,
                memory=deployment.memory,
                loaded=deployment.current is not None,
                waiting=len(load.waiting) if load else 0,
                metrics=deployment.metrics,
            )
