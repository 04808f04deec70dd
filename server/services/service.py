"""One bundle that is served: its self-test, its worker thread and its state.

    starting --> ok --> draining
        |
        +--> self_test_failed

This is the part that every bundle has. language_service.py and array_service.py add what a
language model and array functions have. None of them knows HTTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hearthd.bundle import MANIFEST, answer_identity
from hearthd.runtime.checks.self_test import Level
from hearthd.runtime.open_bundle import hashed_files
from hearthd.server.errors import SelfTestFailed, Starting
from hearthd.server.use_count import UseCount
from hearthd.server.version import version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from hearthd.bundle import Manifest, ProgramFile
    from hearthd.runtime.checks.self_test import Verdict
    from hearthd.server.engine.backend import Worker
    from hearthd.server.errors import Unavailable
    from hearthd.server.metrics import Metrics

# Level is exported for the API layer, which does not import the runtime.
__all__ = ["Description", "Level", "Service", "fingerprint"]

log = logging.getLogger(__name__)


def fingerprint(
    manifest: Manifest, program: ProgramFile | None = None, adapter: bytes = b""
) -> str:
    """The system_fingerprint of a bundle's answers, with the adapter of a key, if any.

    It names the program if the bundle has several, since their logits may differ in the last bits.
    """
    identity = answer_identity(manifest)
    if adapter:
        identity = hashlib.sha256(bytes.fromhex(identity) + adapter).hexdigest()
    suffix = f"-{program.target.name}" if program and manifest.other_programs else ""
    return f"hearth-{identity[:16]}{suffix}"


@dataclass(frozen=True, kw_only=True)
class Description:
    """The facts that a language model reports, also after it was unloaded.

    slots, context      as opened: sequences at a time, and positions of each
    queue_limit         as opened
    chat_template       source of the chat template, or an empty string
    bos, eos            names of the tokens that begin a text and end an answer, or empty strings
    sampling            defaults of requests: sampling parameters, seed, stop strings and lengths
    """

    slots: int
    context: int
    queue_limit: int
    chat_template: str
    bos: str
    eos: str
    sampling: Mapping[str, Any]


class Service:
    """One bundle, from its self-test to its last answer.

    `name` is the model's name in the API; None for its architecture. `memory` is what the bundle
    takes besides SHARED_MEMORY, in bytes. `signed` says whether its signature was checked.
    `self_test` compares computed values with the bundle's golden values, in a thread of its own.
    `program` computes the answers; None if none is known, as in a test. `users` are its requests.
    """

    manifest: Manifest
    metrics: Metrics
    memory: int = 0
    signed: bool = False

    def __init__(
        self,
        manifest: Manifest,
        worker: Worker,
        self_test: Callable[[], Verdict],
        *,
        name: str | None,
        level: Level,
        program: ProgramFile | None = None,
    ) -> None:
        self.manifest = manifest
        self.program = program
        self.level = level
        self.name = name or manifest.architecture
        self.started = time.time()
        self.fingerprint = fingerprint(manifest, program)
        self.verdict: Verdict | None = None
        self.users = UseCount()
        self._worker = worker
        self._self_test = self_test
        self._tested: Future[Verdict] | None = None
        if program is not None:
            log.info("%s: runs the program for %s", self.name, program.text)

    @property
    def facts(self) -> dict[str, str]:
        """The constant labels of the metric hearth_info."""
        return {
            "version": version(),
            "model": self.name,
            "architecture": self.manifest.architecture,
            "precision": self.manifest.precision,
            "bundle": self.fingerprint,
        }

    @property
    def description(self) -> Description | None:
        """The description of a language model; None for array functions."""
        return None

    @property
    def idle(self) -> bool:
        """Whether no accepted request is running or waiting."""
        return self._worker.idle

    def unavailable(self) -> Unavailable | None:
        """Why requests are rejected now, or None."""
        if problem := self._worker.unavailable():
            return problem
        if self.verdict is None:
            return Starting("the self-test is running; retry in a few seconds")
        if not self.verdict.passed:
            return SelfTestFailed(self.verdict.message)
        return None

    def test(self) -> Future[Verdict]:
        """Start the self-test in a separate thread; `start` waits for it."""
        tester = ThreadPoolExecutor(1, "self-test")
        self._tested = tester.submit(self._self_test)
        tester.shutdown(wait=False)  # the thread ends with the test
        return self._tested

    async def start(self) -> Verdict:
        """Finish the self-test, run it first if needed, and accept requests if it passed."""
        verdict = await asyncio.wrap_future(self._tested or self.test())
        hashed = hashed_files(self.manifest, self.level, signed=self.signed)
        files = (MANIFEST, *(file.name for file in hashed))
        verdict = replace(verdict, files=files)
        if verdict.passed:
            self._worker.start()
        self.verdict = verdict
        return verdict

    def drain(self) -> None:
        """Reject new requests; finish the accepted ones."""
        self._worker.drain()

    def cancel(self) -> None:
        """Cancel the accepted requests: each ends with the error Draining."""
        self._worker.cancel()

    async def stop(self) -> None:
        """Cancel the accepted requests and end the worker."""
        await asyncio.to_thread(self._worker.close)
