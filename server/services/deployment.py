"""Which bundle answers: the one that new requests go to, and those before it that still finish.

A reload opens what lies at the bundle's place by now beside the bundle that is served, and runs its
self-test. If that passes, new requests go to the new bundle, and those that run end on theirs: an
answer comes wholly from one bundle. If it does not pass, or cannot be opened, nothing changes but
`last_reload`. Meanwhile both bundles are in memory, and the self-test takes its share of the CPU.

It knows no HTTP and no kind of bundle.
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
from server.process.heap import give_back
from server.services.opened_files import OpenedFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from server.services.bundle_service import Served

log = logging.getLogger(__name__)

_LOOK = 0.05  # seconds between looks at the requests of a bundle that is to go


@dataclass(frozen=True, kw_only=True)
class Reload:
    """How the latest reload ended, and the fingerprint of the bundle that is served since."""

    succeeded: bool
    message: str
    bundle: str
    seconds: float


class Deployment:
    """The bundle that is served: the one in `folder`, if it has one.

    `open_again` opens what is there by then, in a thread of its own. All else is called from one
    event loop.
    """

    def __init__(
        self, service: Served, open_again: Callable[[], Served], folder: Path | None = None
    ) -> None:
        self.current = service
        self.last_reload: Reload | None = None
        self.overwritten: tuple[str, ...] = ()  # files of the bundle, under the server
        self._folder = folder
        self._files = OpenedFiles(folder)
        self._open_again = open_again
        self._requests: Counter[Served] = Counter()
        self._retiring: dict[Served, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._draining = False

    @contextlib.contextmanager
    def request(self) -> Iterator[Served]:
        """What a request goes to, from its head to the last byte of its answer."""
        service = self.current
        self._requests[service] += 1
        try:
            yield service
        finally:
            self._requests[service] -= 1

    @property
    def idle(self) -> bool:
        """Whether no accepted request is being answered."""
        return all(service.idle for service in self._all())

    def drain(self) -> None:
        """Accept no more requests and reloads; what is accepted is answered."""
        self._draining = True
        self.current.drain()

    def cancel(self) -> None:
        """Cancel what is left, as Served.cancel."""
        self._draining = True
        for service in self._all():
            service.cancel()

    async def stop(self) -> None:
        """Cancel what is left and end all workers; waits for a reload, which then fails."""
        self.cancel()
        async with self._one_at_a_time:
            for retirement in self._retiring.values():
                retirement.cancel()
            await asyncio.gather(*self._retiring.values(), return_exceptions=True)
            for service in self._all():
                await service.stop()

    async def reload(self) -> Reload:
        """Serve what is at the bundle's place now; who comes during a reload waits for it.

        Raises NotReloaded, with the reason, when the bundle before goes on being served.
        """
        async with self._one_at_a_time:
            began, files = time.monotonic(), OpenedFiles(self._folder)
            try:
                self._take(await self._opened())
                self._files = files
            except Exception as error:
                reason = str(error) or type(error).__name__
                problem = f"the bundle before goes on being served: {reason}"
                self._note(began, problem, succeeded=False)
                log.error("not reloaded: %s", problem)
                raise NotReloaded(problem) from error
            done = self._note(began, f"{self.current.name} is served", succeeded=True)
            log.info("reloaded: %s, %s", self.current.name, self.current.fingerprint)
            return done

    def look(self) -> None:
        """Look whether files that are served are overwritten; asked every second or so."""
        found = self._files.overwritten()
        if found != self.overwritten:
            self.overwritten = found
            if found:
                log.error("%s: answers may be wrong, and the process may be killed", self.damage)

    @property
    def damage(self) -> str:
        """What has happened to the files that are served, or nothing."""
        if not self.overwritten:
            return ""
        names = ", ".join(self.overwritten)
        return f"{names} of the bundle: overwritten while served (put a whole one there and reload)"

    async def _opened(self) -> Served:
        """The bundle, with its self-test passed; raises what keeps it from being served."""
        if self._draining:
            raise Draining("the server is shutting down and takes no new bundle")
        newer = await asyncio.to_thread(self._open_again)
        try:
            if type(newer) is not type(self.current):
                raise NotReloaded("it holds another kind of program: restart the server")
            verdict = await newer.start()
            if not verdict.passed:
                raise NotReloaded(verdict.message)
            if self._draining:
                raise Draining("the server is shutting down")
        except BaseException:
            await newer.stop()
            raise
        return newer

    def _take(self, newer: Served) -> None:
        older = self.current
        older.metrics.follow(newer.metrics)
        newer.metrics = older.metrics
        self.current = newer
        self._retiring[older] = asyncio.create_task(self._retire(older))

    async def _retire(self, older: Served) -> None:
        """End a bundle when its last request is answered, and give its memory back."""
        while self._requests[older]:
            await asyncio.sleep(_LOOK)
        await older.stop()
        del self._requests[older], self._retiring[older], older
        _collect()

    def _note(self, began: float, message: str, *, succeeded: bool) -> Reload:
        self.last_reload = Reload(
            succeeded=succeeded,
            message=message,
            bundle=self.current.fingerprint,
            seconds=time.monotonic() - began,
        )
        return self.last_reload

    def _all(self) -> tuple[Served, ...]:
        return (self.current, *self._retiring)


def _collect() -> None:
    """Free what was of a bundle, and hand its memory back."""
    frozen = gc.get_freeze_count()  # see server/cli.py; what is frozen is never looked through
    gc.unfreeze()
    gc.collect()
    if frozen:
        gc.freeze()
    give_back()
