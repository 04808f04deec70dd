"""A bundle of array functions that is served: what its routes share. It knows no HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.golden_arrays import read_examples
from runtime.open_bundle import open_arrays
from runtime.self_test import self_test_arrays
from server.engine.array_calls import Calls
from server.errors import ServerError
from server.metrics import ArraysMetrics
from server.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from models.bundle import ArraysManifest, PublicKey
    from runtime.array_bytes import Arrays
    from runtime.array_functions import Functions
    from runtime.golden_arrays import GoldenExample
    from runtime.self_test import Level, Verdict

QUEUE_LIMIT = 64


class ArrayService(Service):
    """The array functions of one bundle, and the thread that runs them."""

    manifest: ArraysManifest
    metrics: ArraysMetrics

    def __init__(
        self,
        runtime: Functions,
        manifest: ArraysManifest,
        examples: Sequence[GoldenExample],
        *,
        queue_limit: int = QUEUE_LIMIT,
        name: str | None = None,
        level: Level = "quick",
    ) -> None:
        self._runtime = runtime
        self._examples = examples
        self._calls = Calls(runtime, queue_limit=queue_limit)
        super().__init__(manifest, self._calls, name, level)
        self.functions = {function.name: function for function in manifest.functions}
        self.metrics = ArraysMetrics(
            state=self._calls.state, verdict=lambda: self.verdict, info=self.facts
        )

    async def run(self, function: str, inputs: Arrays) -> Arrays:
        """Run a function; return its outputs by name, in the manifest's order.

        The caller has checked the names, shapes and dtypes of the inputs. Raises QueueFull,
        Unavailable or GenerationFailed.
        """
        if problem := self.unavailable():
            raise problem
        answer = self._calls.submit(function, inputs)
        outcome = "cancelled"
        try:
            called = await answer
            outcome = "done"
        except ServerError:
            outcome = "failed"
            raise
        finally:
            self.metrics.ended(function, outcome)
        self.metrics.ran(function, queued=called.queued, seconds=called.seconds)
        return called.outputs

    def _self_test(self) -> Verdict:
        tolerance = self.manifest.tolerance
        return self_test_arrays(self._runtime, self._examples, tolerance, level=self.level)


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
    manifest, runtime = open_arrays(bundle, threads=threads, level=level, keys=keys)
    service = ArrayService(
        runtime,
        manifest,
        read_examples(bundle, manifest),
        queue_limit=queue_limit,
        name=name or bundle.resolve().name,
        level=level,
    )
    service.memory = manifest.own_memory
    service.signed = bool(keys)
    return service
