"""The service that new requests go to, and how a reload replaces it.

A reload opens the bundle's folder again, next to the bundle that is served, and runs the self-test.
If it passes, new requests go to the new bundle, and running requests finish on the old one: every
answer comes from a single bundle. If the new bundle cannot be opened or its self-test fails, only
`last_reload` changes. During a reload both bundles are in memory, and the self-test uses CPU time.

It knows neither HTTP nor what a bundle contains.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.errors import Draining, NotReloaded
from server.process.free_memory import free_memory
from server.services.file_watch import FileWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from server.services.service import Service

log = logging.getLogger(__name__)

_RETIRE_INTERVAL = 0.05  # seconds between checks whether an old bundle still has requests


@dataclass(frozen=True, kw_only=True)
class Reload:
    """The result of the last reload, and the fingerprint of the bundle served since then."""

    succeeded: bool
    message: str
    bundle: str
    seconds: float


class Deployment:
    """The bundle that is served, from `folder` if it has one.

    `open_again` opens the folder again; it runs in a separate thread. Everything else must be
    called from one event loop.
    """

    def __init__(
        self, service: Service, open_again: Callable[[], Service], folder: Path | None = None
    ) -> None:
        self.current = service
        self.last_reload: Reload | None = None
        self.overwritten: tuple[str, ...] = ()  # files of the bundle that is served
        self._folder = folder
        self._files = FileWatch(folder)
        self._open_again = open_again
        self._requests: Counter[Service] = Counter()
        self._retiring: dict[Service, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._draining = False

    @contextlib.contextmanager
    def request(self) -> Iterator[Service]:
        """The service for one request, from its head to the last byte of its response."""
        service = self.current
        self._requests[service] += 1
        try:
            yield service
        finally:
            self._requests[service] -= 1

    @property
    def idle(self) -> bool:
        """Whether no accepted request is running or waiting."""
        return all(service.idle for service in self._all())

    def drain(self) -> None:
        """Reject new requests and reloads; finish the accepted requests."""
        self._draining = True
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

    async def reload(self) -> Reload:
        """Open the folder again and serve the bundle in it. One reload runs at a time.

        Raises NotReloaded, with the reason, if the old bundle is still served.
        """
        async with self._one_at_a_time:
            start, files = time.monotonic(), FileWatch(self._folder)
            try:
                self._replace(await self._open())
                self._files = files
            except Exception as error:
                reason = str(error) or type(error).__name__
                problem = f"still serving the old bundle: {reason}"
                self._record(start, problem, succeeded=False)
                log.error("reload failed: %s", problem)
                raise NotReloaded(problem) from error
            result = self._record(start, f"serving {self.current.name}", succeeded=True)
            log.info("reloaded: serving %s, %s", self.current.name, self.current.fingerprint)
            return result

    def check_files(self) -> None:
        """Check whether files of the bundle were overwritten. Called about once a second."""
        overwritten = self._files.overwritten()
        if overwritten != self.overwritten:
            self.overwritten = overwritten
            if overwritten:
                log.error("%s: answers may be wrong, and the process may crash", self.damage)

    @property
    def damage(self) -> str:
        """What is wrong with the files of the bundle that is served, or an empty string."""
        if not self.overwritten:
            return ""
        names = ", ".join(self.overwritten)
        return f"files of the bundle were overwritten while served ({names}); restore it and reload"

    async def _open(self) -> Service:
        """Open the bundle and run its self-test; raises an error if it cannot be served."""
        if self._draining:
            raise Draining("the server is shutting down")
        newer = await asyncio.to_thread(self._open_again)
        try:
            if type(newer) is not type(self.current):
                raise NotReloaded(
                    "the new bundle is of another kind; restart the server to serve it"
                )
            verdict = await newer.start()
            if not verdict.passed:
                raise NotReloaded(verdict.message)
            if self._draining:
                raise Draining("the server is shutting down")
        except BaseException:
            await newer.stop()
            raise
        return newer

    def _replace(self, newer: Service) -> None:
        older = self.current
        older.metrics.follow(newer.metrics)
        newer.metrics = older.metrics
        self.current = newer
        self._retiring[older] = asyncio.create_task(self._retire(older))

    async def _retire(self, older: Service) -> None:
        """Stop a service when its last request is answered, and free its memory."""
        while self._requests[older]:
            await asyncio.sleep(_RETIRE_INTERVAL)
        await older.stop()
        del self._requests[older], self._retiring[older], older
        _free_garbage()

    def _record(self, start: float, message: str, *, succeeded: bool) -> Reload:
        self.last_reload = Reload(
            succeeded=succeeded,
            message=message,
            bundle=self.current.fingerprint,
            seconds=time.monotonic() - start,
        )
        return self.last_reload

    def _all(self) -> tuple[Service, ...]:
        return (self.current, *self._retiring)


def _free_garbage() -> None:
    """Free the memory of a service that was stopped."""
    frozen = gc.get_freeze_count()  # set in server/cli.py; the collector ignores frozen objects
    gc.unfreeze()
    gc.collect()
    if frozen:
        gc.freeze()
    free_memory()
