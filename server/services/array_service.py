"""A bundle of array functions that is served: what its routes share. It knows no HTTP."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from hearthd.bundle import ArraysManifest
from hearthd.runtime.array_functions import ArraysRuntime
from hearthd.runtime.checks.golden_arrays import read_examples
from hearthd.runtime.checks.self_test import self_test_arrays
from hearthd.runtime.open_bundle import open_functions
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
    from hearthd.runtime.checks.self_test import Level, Verdict
    from hearthd.server.engine.array_calls import Called
    from hearthd.server.engine.state import CallsState

S = TypeVar("S", bound=Service)


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


@dataclass(frozen=True, kw_only=True)
class FunctionsOptions:
    """How a bundle of functions is opened.

    threads      None: one per physical core
    queue_limit  waiting calls
    name         the model's name; None: the name of the folder
    level        what the self-test compares
    keys         if any, one of them must have signed the bundle
    """

    threads: int | None = None
    queue_limit: int = 64
    name: str | None = None
    level: Level = "quick"
    keys: Sequence[PublicKey] = ()


def open_functions_service(
    bundle: Path,
    kind: type[Any],
    runtime_type: Callable[..., Any],
    worker: Callable[..., Worker],
    service: Callable[..., S],
    options: FunctionsOptions,
) -> S:
    """Open a bundle of functions; raises BundleError.

    kind, runtime_type  as in open_functions
    worker   makes a worker of a runtime: Calls or SpeechJobs
    service  makes the service, from the arguments of ArrayService
    """
    manifest, runtime = open_functions(
        bundle, kind, runtime_type, threads=options.threads, level=options.level, keys=options.keys
    )
    examples = read_examples(bundle, manifest)
    opened = service(
        worker(runtime, queue_limit=options.queue_limit),
        functools.partial(
            self_test_arrays, runtime, examples, manifest.tolerance, level=options.level
        ),
        manifest,
        name=options.name or bundle.resolve().name,
        level=options.level,
        program=runtime.program,
    )
    opened.memory = manifest.own_memory
    opened.signed = bool(options.keys)
    return opened


def open_array_service(bundle: Path, options: FunctionsOptions) -> ArrayService:
    """Open a bundle of array functions; raises BundleError."""
    return open_functions_service(
        bundle, ArraysManifest, ArraysRuntime, Calls, ArrayService, options
    )
