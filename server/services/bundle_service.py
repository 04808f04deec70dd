"""A bundle being served, whatever it holds, and the states that a server goes through.

    starting --> ok --> draining
        |
        +--> self_test_failed

It knows no HTTP and no kind of program: service.py and array_service.py do.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Protocol

from models.bundle import MANIFEST, digest
from runtime.open_bundle import digested
from runtime.self_test import Level
from server.errors import SelfTestFailed, Starting

if TYPE_CHECKING:
    from concurrent.futures import Future

    from models.bundle import Manifest
    from runtime.self_test import Verdict
    from server.errors import Unavailable
    from server.metrics import Metrics

# Level is exported for the API layer, which does not import the runtime.
__all__ = ["Level", "Served", "Worker", "version"]


def version() -> str:
    """The version of the installed package; of a source tree that is not installed, a word."""
    try:
        return metadata.version("hearth")
    except metadata.PackageNotFoundError:
        return "not installed"


class Worker(Protocol):
    """The thread that owns the runtime, as it is started and ended."""

    @property
    def idle(self) -> bool:
        """Whether every accepted request has been left by its client."""

    def unavailable(self) -> Unavailable | None:
        """Why it takes no requests now, or None."""

    def start(self) -> None:
        """Take requests; from now on the runtime belongs to the thread."""

    def drain(self) -> None:
        """Refuse new requests from now on; the accepted ones are served to their end."""

    def cancel(self) -> None:
        """End what is left, after the call of the runtime that is running."""

    def close(self) -> None:
        """As `cancel`; returns when the thread has ended."""


class Served(ABC):
    """One bundle, from the self-test to the last answer.

    `name` is what the model is called to clients: its architecture, unless it has a better one.
    """

    manifest: Manifest
    metrics: Metrics

    def __init__(self, manifest: Manifest, worker: Worker, name: str | None, level: Level) -> None:
        self.manifest = manifest
        self.level = level
        self.name = name or manifest.architecture
        self.started = time.time()
        self.fingerprint = f"hearth-{digest(manifest)[:16]}"
        self.verdict: Verdict | None = None
        self._worker = worker
        self._tested: Future[Verdict] | None = None

    @property
    def facts(self) -> dict[str, str]:
        """What does not change, for the metrics."""
        return {
            "version": version(),
            "model": self.name,
            "architecture": self.manifest.architecture,
            "precision": self.manifest.precision,
            "bundle": self.fingerprint,
        }

    @property
    def idle(self) -> bool:
        """Whether no accepted request is being answered."""
        return self._worker.idle

    def unavailable(self) -> Unavailable | None:
        """Why no request is accepted now, or None."""
        if problem := self._worker.unavailable():
            return problem
        if self.verdict is None:
            return Starting("the self-test is running: try again in a moment")
        if not self.verdict.passed:
            return SelfTestFailed(self.verdict.message)
        return None

    def test(self) -> Future[Verdict]:
        """Begin the self-test, in a thread of its own; `start` will have what it finds."""
        tester = ThreadPoolExecutor(1, "self-test")
        self._tested = tester.submit(self._self_test)
        tester.shutdown(wait=False)  # the thread ends with the test
        return self._tested

    async def start(self) -> Verdict:
        """End the self-test, or run it, and unless it fails take requests."""
        verdict = await asyncio.wrap_future(self._tested or self.test())
        files = (MANIFEST, *(file.name for file in digested(self.manifest, self.level)))
        verdict = replace(verdict, files=files)
        if verdict.passed:
            self._worker.start()
        self.verdict = verdict
        return verdict

    def drain(self) -> None:
        """Accept no more requests; what is accepted is answered."""
        self._worker.drain()

    def cancel(self) -> None:
        """Cancel what is left; each answer that is not complete ends by Draining."""
        self._worker.cancel()

    async def stop(self) -> None:
        """Cancel what is left and end the worker."""
        await asyncio.to_thread(self._worker.close)

    @abstractmethod
    def _self_test(self) -> Verdict:
        """Compare with the bundle's golden values, at the level that was asked for."""
