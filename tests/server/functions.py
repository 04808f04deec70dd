"""Functions on arrays without a compiler, and a service on them."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.bundle import ArraysManifest, FunctionSpec, InputSpec, OutputSpec
from hearthd.runtime.array_functions import Functions
from hearthd.runtime.checks.golden_arrays import GoldenExample
from hearthd.runtime.checks.self_test import self_test_arrays
from hearthd.server.engine.array_calls import Calls
from hearthd.server.services.array_service import ArrayService
from tests.patience import PATIENCE
from tests.server.fakes import MANIFEST_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hearthd.runtime.array_bytes import Arrays
    from hearthd.runtime.checks.self_test import Verdict

    Array = NDArray[np.float32]

POISON = -7.0  # as the first value of x: the function fails


def _input(name: str, *shape: int, default: Any = "none") -> InputSpec:
    return InputSpec(name=name, shape=shape, dtype="f32", default=default)


def _output(name: str, *shape: int, takes: str | None = None) -> OutputSpec:
    return OutputSpec(name=name, shape=shape, dtype="f32", takes=takes)


# step: y = 2 x + h, and h becomes h + x. root: the square roots of x, and the sum of x.
STEP = FunctionSpec(
    name="step",
    inputs=(_input("x", 2, 3), _input("h", 2, 3, default="zeros")),
    outputs=(_output("y", 2, 3), _output("h", 2, 3, takes="h")),
)
ROOT = FunctionSpec(
    name="root", inputs=(_input("x", 4),), outputs=(_output("y", 4), _output("sum"))
)
FUNCTIONS = {"step": STEP, "root": ROOT}


@dataclass(kw_only=True)
class FakeFunctions(Functions):
    """Computes the two functions; every call waits until `gate` is open."""

    gate: threading.Event = field(default_factory=threading.Event)
    calls: list[float] = field(default_factory=list)  # the first value of x of each
    wrong: bool = False

    def __post_init__(self) -> None:
        self.gate.set()

    @override
    def run(self, function: str, inputs: Arrays) -> Arrays:
        """As strict as a real runtime."""
        for spec in FUNCTIONS[function].inputs:
            assert spec.name in inputs or spec.default == "zeros"
            assert inputs.get(spec.name, np.zeros(spec.shape)).shape == spec.shape
        assert all(array.dtype == np.float32 for array in inputs.values())
        x = inputs["x"]
        self.calls.append(float(x.flat[0]))
        assert self.gate.wait(PATIENCE)
        if x.flat[0] == POISON:
            raise RuntimeError("poison")
        if function == "root":
            with np.errstate(invalid="ignore"):
                return {"y": np.sqrt(x), "sum": x.sum()}
        h = inputs.get("h", np.zeros_like(x))
        return {"y": 2 * x + h + np.float32(self.wrong), "h": h + x}


def manifest_of(*functions: FunctionSpec) -> ArraysManifest:
    """The manifest of a bundle of these functions."""
    return ArraysManifest(**MANIFEST_FIELDS, tolerance=1e-4, functions=functions)


def copying(values: int) -> ArrayService:
    """A service of one function, which copies half of these values to the others."""
    shape = (values // 2,)
    function = FunctionSpec(
        name="copy", inputs=(_input("x", *shape),), outputs=(_output("y", *shape),)
    )
    copier = service()
    copier.manifest = replace(copier.manifest, functions=(function,))
    return copier


def service(runtime: FakeFunctions | None = None, *, queue_limit: int = 8) -> ArrayService:
    """A service whose golden values a right runtime computed."""
    right = FakeFunctions()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    cases: list[tuple[str, dict[str, Array]]] = [
        ("step", {"x": x, "h": x / np.float32(4)}),
        ("root", {"x": x.reshape(-1)[:4]}),
    ]
    examples = [
        GoldenExample(function=name, inputs=inputs, outputs=right.run(name, inputs))
        for name, inputs in cases
    ]
    manifest = manifest_of(STEP, ROOT)
    runtime = runtime or FakeFunctions()
    return ArrayService(
        *local_calls(runtime, manifest, examples, queue_limit=queue_limit), manifest
    )


def local_calls(
    runtime: Functions,
    manifest: ArraysManifest,
    examples: Sequence[GoldenExample],
    *,
    queue_limit: int = 64,
) -> tuple[Calls, Callable[[], Verdict]]:
    """The calls of a runtime, and its self-test, for a service."""
    test = functools.partial(self_test_arrays, runtime, examples, manifest.tolerance)
    return Calls(runtime, queue_limit=queue_limit), test
