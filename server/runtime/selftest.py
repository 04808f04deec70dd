"""Does this machine compute what was baked? Golden values, compared on the very device.

It knows a runtime and the bundle's golden values. Used when a server starts and by `bake verify`.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from server.runtime.base import read_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from models.bundle import Golden, GoldenStep
    from server.runtime.arrays import Functions
    from server.runtime.base import Reader
    from server.runtime.examples import Example

log = logging.getLogger(__name__)

_SLOT = 0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the self-test found.

    largest_difference  of a logit, or of an output's value, from its golden value; infinite if one
                        was not a number
    tolerance           the largest difference that passes
    where               the place of the largest difference
    steps               how many positions, or outputs of functions, were compared
    error               what the runtime raised, which ended the test
    """

    passed: bool
    largest_difference: float
    tolerance: float
    where: str
    steps: int
    seconds: float
    error: str | None

    @property
    def message(self) -> str:
        """The verdict as a sentence."""
        if self.error is not None:
            return f"the self-test failed: the model cannot be run: {self.error}"
        if self.steps == 0:
            return "the self-test failed: the bundle holds no golden values: bake it again"
        if self.passed:
            return f"the self-test passed: {self.steps} steps within {self.largest_difference:.2g}"
        return (
            f"the self-test failed: a value differs by {self.largest_difference:.3g} at "
            f"{self.where}, wanted at most {self.tolerance:.3g}: bake the bundle on this machine, "
            "or report it"
        )


def self_test(runtime: Reader, golden: Sequence[Golden], tolerance: float) -> Verdict:
    """Read each golden prompt, then its continuation token by token, and compare the logits.

    Uses slot 0, whose cache is overwritten.
    """
    return _judge(_differences(runtime, golden), tolerance)


def self_test_arrays(runtime: Functions, examples: Sequence[Example], tolerance: float) -> Verdict:
    """Run each function on its example and compare what it gives."""
    return _judge(_array_differences(runtime, examples), tolerance)


def _judge(differences: Iterator[tuple[str, float]], tolerance: float) -> Verdict:
    """The verdict on the differences, each with its place, that come while the model runs."""
    began = time.perf_counter()
    largest, where, steps = 0.0, "", 0
    error = None
    try:
        for place, difference in differences:
            if steps == 0 or difference > largest:
                largest, where = difference, place
            steps += 1
    except Exception as raised:
        log.exception("the self-test could not run the model")
        error = f"{type(raised).__name__}: {raised}"
    return Verdict(
        passed=error is None and steps > 0 and largest <= tolerance,
        largest_difference=largest,
        tolerance=tolerance,
        where=where,
        steps=steps,
        seconds=time.perf_counter() - began,
        error=error,
    )


def _differences(runtime: Reader, golden: Sequence[Golden]) -> Iterator[tuple[str, float]]:
    """Each step's place and the largest difference of its logits."""
    for number, case in enumerate(golden):
        for index, (step, logits) in enumerate(
            zip(case.steps, _replay(runtime, case), strict=True)
        ):
            yield f"golden prompt {number}, step {index}", _difference(step, logits)


def _replay(runtime: Reader, case: Golden) -> Iterator[NDArray[np.float32]]:
    """The logits before each of the golden tokens, f32 (V,)."""
    yield read_prompt(runtime, case.prompt_ids, slot=_SLOT)
    for position, step in enumerate(case.steps[:-1], start=len(case.prompt_ids)):
        yield runtime.decode([_SLOT], [step.token_ids[0]], [position])[0]


def _array_differences(
    runtime: Functions, examples: Sequence[Example]
) -> Iterator[tuple[str, float]]:
    """Each output's place and the largest difference of its values."""
    for example in examples:
        outputs = runtime.run(example.function, example.inputs)
        for name, wanted in example.outputs.items():
            yield f"{example.function}: {name}", _largest(outputs[name], wanted)


def _difference(step: GoldenStep, logits: NDArray[np.float32]) -> float:
    return _largest(logits[list(step.token_ids)], np.asarray(step.logits))


def _largest(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    difference = float(np.abs(got.astype(np.float64) - wanted).max())
    return math.inf if math.isnan(difference) else difference
