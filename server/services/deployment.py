"""One bundle that the server offers: unloaded, or served by a service that a reload can replace.

    unloaded --load--> loaded --unload--> unloaded

A load that fails leaves the deployment unloaded, with the reason in `failure`.

A reload opens the bundle's folder again, next to the bundle that is served, and runs the self-test.
If it passes, new requests go to the new bundle, and running requests finish on the old one: every
answer comes from a single bundle. If the new bundle cannot be opened or its self-test fails, only
`last_reload` changes. During a reload both bundles are in memory, and the self-test uses CPU time.

model_pool.py decides which deployments are loaded. This module knows neither HTTP nor what a bundle
contains.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hearthd.bundle import CHAT_TEMPLATE
from hearthd.runtime.system.cpu_features import UnsupportedCpu, best_program
from hearthd.runtime.system.free_memory import free_memory
from hearthd.server.errors import Draining, NotLoaded, NotReloaded, SelfTestFailed
from hearthd.server.fault_isolation import STOPS, BackgroundTasks
from hearthd.server.services.file_watch import FileWatch
from hearthd.server.services.service import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hearthd.bundle import Manifest, ProgramFile
    from hearthd.runtime.checks.self_test import Verdict
    from hearthd.server.metrics import Metrics
    from hearthd.server.services.service import Description, Service

log = logging.getLogger(__name__)

# Opens a bundle, in a thread of its own. The argument is the memory of other models, in bytes.
Opener: TypeAlias = "Callable[[int], Service]"


@dataclass(frozen=True, kw_only=True)
class Reload:
    """The result of the last reload, and the fingerprint of the bundle served since then."""

    succeeded: bool
    message: str
    bundle: str
    seconds: float


class Lease:
    """A service that one request uses, until it is closed. A context manager."""

    def __init__(self, service: Service) -> None:
        self.service = service
        service.users.begin()

    def __enter__(self) -> Service:
        return self.service

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The request does not use the service any more."""
        self.service.users.end()


class Deployment:
    """One model: its bundle, and the service while the bundle is loaded.

    name         the model's name in the API
    aliases      all names of the model in /v1/models, and `tags` its tags
    manifest     the bundle's manifest as it was read last; None if it could not be read
    description  of the service that was loaded last; None before the first load
    failure      why the last load failed; empty if it did not
    pinned       whether the bundle stays loaded
    idle_timeout  seconds without a request after which the bundle is unloaded; None for never
    template     whether a setting gives the model a chat template, whatever the bundle has

    `open_bundle` opens the bundle. Everything else must be called from one event loop.
    """

    def __init__(
        self,
        name: str,
        open_bundle: Opener,
        *,
        manifest: Manifest | None = None,
        folder: Path | None = None,
        aliases: tuple[str, ...] = (),
        tags: tuple[str, ...] = (),
        template: bool = False,
        idle_timeout: float | None = None,
    ) -> None:
        self.name = name
        self.aliases = aliases
        self.tags = tags
        self.template = template
        self.manifest = manifest
        self.folder = folder
        self.current: Service | None = None
        self.description: Description | None = None
        self.metrics: Metrics | None = None  # of all services, the first one's
        self.failure = ""
        self.failed_at = 0.0  # by time.monotonic
        self.pinned = False
        self.idle_timeout = idle_timeout
        self._unclaimed = asyncio.Event()
        self._unclaimed.set()
        self.created = time.time()  # when the bundle was last opened
        self.last_used = time.monotonic()
        self.last_reload: Reload | None = None
        self.overwritten: tuple[str, ...] = ()  # files of the bundle that is served
        self._open_bundle = open_bundle
        self._files = FileWatch(folder)
        self._retiring: dict[Service, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()
        self._one_at_a_time = asyncio.Lock()
        self._draining = False

    @property
    def fingerprint(self) -> str:
        """The system_fingerprint of the model's answers; empty if the manifest cannot be read."""
        if self.current is not None:
            return self.current.fingerprint
        return fingerprint(self.manifest, self.program) if self.manifest else ""

    @property
    def verdict(self) -> Verdict | None:
        """The result of the loaded bundle's self-test, once there is one."""
        return self.current.verdict if self.current else None

    @property
    def program(self) -> ProgramFile | None:
        """The program that computes the answers, or that a load would choose.

        That is model.vmfb if this machine can run none.
        """
        if self.current is not None and self.current.program is not None:
            return self.current.program
        if self.manifest is None:
            return None
        try:
            return best_program(self.manifest)
        except UnsupportedCpu:
            return self.manifest.programs[0]

    @property
    def has_chat_template(self) -> bool:
        """Whether the model has a chat template, or would have one after a load."""
        if self.description is not None:
            return bool(self.description.chat_template)
        files = self.manifest.files if self.manifest else ()
        return self.template or any(file.name == CHAT_TEMPLATE for file in files)

    @property
    def memory(self) -> int:
        """Bytes that the loaded bundle takes, without the process; 0 if unloaded."""
        return self.current.memory if self.current else 0

    @property
    def requests(self) -> int:
        """The number of requests that use the current service."""
        return self.current.users.count if self.current else 0

    @property
    def claimed(self) -> bool:
        """Whether the bundle is about to be unloaded; new requests wait for its next load."""
        return not self._unclaimed.is_set()

    @property
    def idle(self) -> bool:
        """Whether no accepted request is running or waiting."""
        return all(service.idle for service in self._all())

    def lease(self) -> Lease:
        """The current service, for one request. It exists."""
        assert self.current is not None, "the bundle is loaded"
        self.last_used = time.monotonic()
        return Lease(self.current)

    def open(self, *, reserved: int = 0) -> None:
        """Open the bundle before the event loop runs; raises the opener's errors.

        `start` finishes what this begins. `reserved` as in `load`.
        """
        try:
            self.serve(self._open_bundle(reserved))
        except Exception as error:
            self.fail(error)
            raise
        assert self.current is not None
        self.current.test()

    def serve(self, service: Service) -> None:
        """Answer with this service, which nothing has started yet or which has passed its test."""
        older, self.current = self.current, service
        if self.metrics is None:
            self.metrics = service.metrics
        else:
            self.metrics.follow(service.metrics)
            service.metrics = self.metrics
        self.manifest, self.description = service.manifest, service.description
        self.created, self.failure = service.started, ""
        self.last_used = time.monotonic()
        self._unclaimed.set()
        if older is not None:
            self._retiring[older] = self._tasks.start(
                f"the end of the old bundle of {self.name}", self._retire(older)
            )

    async def start(self) -> None:
        """Finish the self-test of an opened bundle, and accept requests if it passed.

        Raises NotLoaded if the self-test cannot end; the bundle is then unloaded.
        """
        if self.current is None:
            return
        try:
            await self.current.start()
        except STOPS:
            raise
        except BaseException as error:
            service, self.current = self.current, None
            await service.stop()
            raise self.fail(error) from error

    async def load(self, *, reserved: int = 0) -> None:
        """Open and test the bundle, unless it is loaded; other models take `reserved` bytes.

        Raises NotLoaded, and then the bundle is unloaded.
        """
        async with self._one_at_a_time:
            if self.current is not None:
                return
            start, files = time.monotonic(), FileWatch(self.folder)
            try:
                self.serve(await self._open(reserved))
            except STOPS:
                raise
            except BaseException as error:
                failure = self.fail(error)
                log.error("%s", failure)
                raise failure from error
            self._files = files
            log.info("loaded %s in %.1f s", self.name, time.monotonic() - start)

    async def unload(self) -> None:
        """Wait until no load runs and no request uses the service, then stop it and free memory.

        New requests wait meanwhile. If the waiting caller is cancelled, the bundle stays loaded.
        """
        async with self._one_at_a_time:
            self._unclaimed.clear()
        try:
            while self.current is not None and self.current.users.count:
                await self.current.users.unused()
            service, self.current = self.current, None
        finally:
            self._unclaimed.set()
        if service is not None:
            self.overwritten = ()
            assert self.metrics is not None
            self.metrics.detach()
            await asyncio.shield(service.stop())
            del service
            _free_garbage()
            log.info("unloaded %s", self.name)

    async def settled(self) -> None:
        """Wait until the bundle is not about to be unloaded."""
        while self.claimed:
            await self._unclaimed.wait()

    def drain(self) -> None:
        """Reject new requests and reloads; finish the accepted requests."""
        self._draining = True
        if self.current is not None:
            self.current.drain()

    def cancel(self) -> None:
        """Cancel the accepted requests: see Service.cancel."""
        self._draining = True
        for service in self._all():
            service.cancel()

    async def stop(self) -> None:
        """Cancel the accepted requests and end all workers. A reload that is running fails."""
        self.cancel()
        async with self._one_at_a_time:
            for retirement in self._retiring.values():
                retirement.cancel()
            await asyncio.gather(*self._retiring.values(), return_exceptions=True)
            for service in self._all():
                await service.stop()

    async def reload(self, *, reserved: int = 0) -> Reload:
        """Open the folder again and serve the bundle in it. One reload runs at a time.

        Raises NotReloaded, with the reason, if the old bundle is still served, or none.
        """
        async with self._one_at_a_time:
            start, files = time.monotonic(), FileWatch(self.folder)
            try:
                newer = await self._open(reserved)
                self.serve(newer)
                self._files = files
            except STOPS:
                raise
            except BaseException as error:
                reason = str(error) or type(error).__name__
                problem = f"still serving the old bundle: {reason}" if self.current else reason
                self._record(start, problem, succeeded=False)
                log.error("reload failed: %s", problem)
                raise NotReloaded(problem) from error
            result = self._record(start, f"serving {self.name}", succeeded=True)
            log.info("reloaded: serving %s, %s", self.name, newer.fingerprint)
            return result

    def check_files(self) -> None:
        """Check whether files of the bundle were overwritten. Called about once a second."""
        overwritten = self._files.overwritten() if self.current else ()
        if overwritten != self.overwritten:
            self.overwritten = overwritten
            if overwritten:
                log.error("%s: answers may be wrong, and the process may crash", self.damage)

    @property
    def damage(self) -> str:
        """The problem with the files of the bundle that is served, or an empty string."""
        if not self.overwritten:
            return ""
        names = ", ".join(self.overwritten)
        return f"files of the bundle were overwritten while served ({names}); restore it and reload"

    async def _open(self, reserved: int) -> Service:
        """Open the bundle and run its self-test; raises an error if it cannot be served."""
        if self._draining:
            raise Draining("the server is shutting down")
        newer = await asyncio.to_thread(self._open_bundle, reserved)
        try:
            if self.manifest is not None and type(newer.manifest) is not type(self.manifest):
                raise NotReloaded(
                    "the new bundle is of another kind; restart the server to serve it"
                )
            verdict = await newer.start()
            if not verdict.passed:
                raise SelfTestFailed(verdict.message)
            if self._draining:
                raise Draining("the server is shutting down")
        except BaseException:
            await newer.stop()
            raise
        return newer

    def fail(self, error: BaseException) -> NotLoaded:
        """Remember that the bundle cannot be loaded; the error for the requests that wait."""
        reason = str(error) or type(error).__name__
        self.failure = f"{self.name}: the model cannot be loaded: {reason}"
        self.failed_at = time.monotonic()
        return NotLoaded(self.failure)

    async def _retire(self, older: Service) -> None:
        """Stop a service when its last request is answered, and free its memory."""
        await older.users.unused()
        try:
            await older.stop()
        finally:
            del self._retiring[older], older
            _free_garbage()

    def _record(self, start: float, message: str, *, succeeded: bool) -> Reload:
        self.last_reload = Reload(
            succeeded=succeeded,
            message=message,
            bundle=self.fingerprint,
            seconds=time.monotonic() - start,
        )
        return self.last_reload

    def _all(self) -> tuple[Service, ...]:
        return (*([self.current] if self.current else []), *self._retiring)


def _free_garbage() -> None:
    """Free the memory of a service that was stopped."""
    frozen = gc.get_freeze_count()  # set in server/cli.py; the collector ignores frozen objects
    gc.unfreeze()
    gc.collect()
    if frozen:
        gc.freeze()
    free_memory()
