"""A bundle of array functions that is served: what its routes share. It knows no HTTP."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ClassVar, Protocol

from hearthd.bundle import ArraysManifest
from hearthd.runtime.array_functions import ArraysRuntime
from hearthd.runtime.golden_arrays import read_examples
from hearthd.runtime.open_bundle import open_functions
from hearthd.runtime.self_test import self_test_arrays
from hearthd.server.engine.array_calls import Calls
from hearthd.server.engine.backend import Worker
from hearthd.server.metrics import ArraysMetrics
from hearthd.server.services.service import Service
from hearthd.text.errors import RequestError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hearthd.bundle import ProgramFile, PublicKey
    from hearthd.runtime.array_bytes import Arrays
    from hearthd.runtime.array_functions import Functions
    from hearthd.runtime.golden_arrays import GoldenExample
    from hearthd.runtime.self_test import Level, Verdict
    from hearthd.server.engine.array_calls import Called
    from hearthd.server.engine.state import CallsState

QUEUE_LIMIT = 64


class CallsBackend(Worker, Protocol):
    """Runs array functions: in this process, or in other processes."""

    def submit(self, function: str, inputs: Arrays) -> asyncio.Future[Called]:
        """Accept a call; see Calls.submit."""

    def state(self) -> CallsState:
        """The running and waiting calls."""


class ArrayService(Service):
    """The array functions of one bundle, and the backend that runs them."""

    manifest: ArraysManifest
    metrics: ArraysMetrics
    metrics_type: ClassVar[type[ArraysMetrics]] = ArraysMetrics

    def __init__(
        self,
        calls: CallsBackend,
        self_test: Callable[[], Verdict],
        manifest: ArraysManifest,
        *,
        name: str | None = None,
        level: Level = "quick",
        program: ProgramFile | None = None,
    ) -> None:
        super().__init__(manifest, calls, self_test, name=name, level=level, program=program)
        self.calls = calls
        self.functions = {function.name: function for function in manifest.functions}
        self.metrics = self.metrics_type(
            state=calls.state, verdict=lambda: self.verdict, info=self.facts
        )

    async def run(self, function: str, inputs: Arrays) -> Arrays:
        """Run a function; return its outputs by name, in the manifest's order.

        The caller has checked the names, shapes and dtypes of the inputs. Raises QueueFull,
        Unavailable or GenerationFailed.
        """
        if problem := self.unavailable():
            raise problem
        answer = self.calls.submit(function, inputs)
        outcome = "cancelled"
        try:
            called = await answer
            outcome = "done"
        except RequestError:
            outcome = "failed"
            raise
        finally:
            self.metrics.ended(function, outcome)
        self.metrics.ran(function, queued=called.queued, seconds=called.seconds)
        return called.outputs


def local_calls(
    runtime: Functions,
    manifest: ArraysManifest,
    examples: Sequence[GoldenExample],
    *,
    queue_limit: int = QUEUE_LIMIT,
    level: Level = "quick",
) -> tuple[Calls, Callable[[], Verdict]]:
    """The calls of a runtime in this process, and its self-test."""
    test = functools.partial(self_test_arrays, runtime, examples, manifest.tolerance, level=level)
    return Calls(runtime, queue_limit=queue_limit), test


def open_array_service(
    bundle: Path,
    *,
    threads: int | None,
    queue_limit: int,
    name: str | None,
    level: Level = "quick",
    keys: Sequence[PublicKey] = (),
) -> ArrayService:
    """Open a bundle of array functions; raises BundleError.

    `threads` None means one per physical core. `name` None means the name of the folder. If there
    are `keys`, one of them must have signed the bundle.
    """
    manifest, runtime = open_functions(
        bundle, ArraysManifest, ArraysRuntime, threads=threads, level=level, keys=keys
    )
    examples = read_examples(bundle, manifest)
    service = ArrayService(
        *local_calls(runtime, manifest, examples, queue_limit=queue_limit, level=level),
        manifest,
        name=name or bundle.resolve().name,
        level=level,
        program=runtime.program,
    )
    service.memory = manifest.own_memory
    service.signed = bool(keys)
    return service
