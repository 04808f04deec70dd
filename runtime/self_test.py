"""The self-test: compare what this machine computes with the bundle's golden values.

    quick   the first prompt, with the entry points that a request uses
    full    every prompt, with every entry point, in every row of a batch
    off     nothing

It knows a runtime and golden values; open_bundle.py checks the files. It runs when a server starts
and in `hearth verify`.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from runtime.interface import read_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from models.bundle import Golden, GoldenStep
    from runtime.array_functions import Functions
    from runtime.golden_arrays import GoldenExample
    from runtime.interface import Reader, Runtime

log = logging.getLogger(__name__)

Level: TypeAlias = Literal["quick", "full", "off"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of the self-test.

    level               what was tested
    files               the files whose sha256 was checked before the program was loaded
    largest_difference  largest difference of a logit or output from its golden value; infinite for
                        NaN
    tolerance           the largest difference that passes
    where               where the largest difference was
    steps               number of positions, or outputs of functions, that were compared
    seconds             duration of the comparison
    error               the error of the runtime that ended the test, or None
    """

    passed: bool
    level: Level
    files: tuple[str, ...]
    largest_difference: float
    tolerance: float
    where: str
    steps: int
    seconds: float
    error: str | None

    @property
    def message(self) -> str:
        """The verdict as a sentence."""
        if self.level == "off":
            return "the self-test is off"
        if self.error is not None:
            return f"the self-test failed: the model cannot be run: {self.error}"
        if self.steps == 0:
            return "the self-test failed: the bundle has no golden values; bake it again"
        if self.passed:
            return f"the self-test passed: {self.steps} steps within {self.largest_difference:.2g}"
        return (
            f"the self-test failed: a value differs by {self.largest_difference:.3g} at "
            f"{self.where}, expected at most {self.tolerance:.3g}; bake the bundle on this "
            "machine, or report it"
        )


def self_test(
    runtime: Runtime, golden: Sequence[Golden], tolerance: float, *, level: Level = "full"
) -> Verdict:
    """Read every golden prompt, then its continuation token by token, and compare the logits.

    Overwrites the caches of slot 0, or of all slots if the level is full.
    """
    differences = _full if level == "full" else _quick
    return _judge(differences(runtime, golden), tolerance, level)


def self_test_arrays(
    runtime: Functions,
    examples: Sequence[GoldenExample],
    tolerance: float,
    *,
    level: Level = "full",
) -> Verdict:
    """Run every function on its example and compare the outputs; `quick` is the same as `full`."""
    return _judge(_array_differences(runtime, examples), tolerance, level)


def _judge(differences: Iterator[tuple[str, float]], tolerance: float, level: Level) -> Verdict:
    """The verdict on pairs of a place and a difference, which are computed as they are consumed."""
    began = time.perf_counter()
    largest, where, steps = 0.0, "", 0
    error = None
    try:
        for place, difference in differences if level != "off" else ():
            if steps == 0 or difference > largest:
                largest, where = difference, place
            steps += 1
    except Exception as raised:
        log.exception("the self-test cannot run the model")
        error = f"{type(raised).__name__}: {raised}"
    return Verdict(
        passed=level == "off" or (error is None and steps > 0 and largest <= tolerance),
        level=level,
        files=(),
        largest_difference=largest,
        tolerance=tolerance,
        where=where,
        steps=steps,
        seconds=time.perf_counter() - began,
        error=error,
    )


def _quick(runtime: Runtime, golden: Sequence[Golden]) -> Iterator[tuple[str, float]]:
    """The place and the largest difference of every step of the first prompt."""
    return _differences(runtime, golden[:1], [0])


def _full(runtime: Runtime, golden: Sequence[Golden]) -> Iterator[tuple[str, float]]:
    """As _quick, for every prompt, with every variant of the runtime, every verify and an embed.

    For an embed, the caches that it wrote are tested by a decode.
    """
    for name, variant in runtime.variants().items():
        for place, difference in _differences(variant, golden, range(variant.batch)):
            yield f"{place} ({name})", difference
    for number, case in enumerate(golden):
        *before, last = case.prompt_ids
        for start in range(0, len(before), runtime.chunk):
            runtime.embed(0, before[start : start + runtime.chunk], start)
        logits = runtime.decode([0], [last], [len(before)])
        yield f"golden prompt {number}, step 0 (embed)", _difference(case.steps[0], logits)
        for tokens in runtime.verify_tokens:
            for index, row in enumerate(_verified(runtime, case, tokens)):
                difference = _difference(case.steps[index], row[None])
                yield f"golden prompt {number}, step {index} (verify {tokens})", difference


def _differences(
    reader: Reader, golden: Sequence[Golden], slots: Sequence[int]
) -> Iterator[tuple[str, float]]:
    """The place of every step, and the largest difference of its logits in any of the slots."""
    for number, case in enumerate(golden):
        for index, (step, logits) in enumerate(
            zip(case.steps, _replay(reader, case, slots), strict=True)
        ):
            yield f"golden prompt {number}, step {index}", _difference(step, logits)


def _replay(reader: Reader, case: Golden, slots: Sequence[int]) -> Iterator[NDArray[np.float32]]:
    """The logits before every golden token, f32 (B, V), of one sequence in B slots at once."""
    yield np.stack([read_prompt(reader, case.prompt_ids, slot=slot) for slot in slots])
    for position, step in enumerate(case.steps[:-1], start=len(case.prompt_ids)):
        token = step.token_ids[0]
        yield reader.decode(slots, [token] * len(slots), [position] * len(slots))


def _verified(runtime: Runtime, case: Golden, tokens: int) -> Iterator[NDArray[np.float32]]:
    """The logits before every golden token, f32 (V,), with calls that verify `tokens` tokens.

    Slot 0 has read the prompt except its last token.
    """
    drafted = [case.prompt_ids[-1], *(step.token_ids[0] for step in case.steps[:-1])]
    for first in range(0, len(drafted), tokens):
        start = len(case.prompt_ids) - 1 + first
        yield from runtime.verify(0, drafted[first : first + tokens], start)


def _array_differences(
    runtime: Functions, examples: Sequence[GoldenExample]
) -> Iterator[tuple[str, float]]:
    """The place of every output and the largest difference of its values."""
    for example in examples:
        outputs = runtime.run(example.function, example.inputs)
        for name, expected in example.outputs.items():
            yield f"{example.function}: {name}", _largest(outputs[name], expected)


def _difference(step: GoldenStep, logits: NDArray[np.float32]) -> float:
    return _largest(logits[:, list(step.token_ids)], np.asarray(step.logits))


def _largest(got: NDArray[Any], expected: NDArray[Any]) -> float:
    difference = float(np.abs(got.astype(np.float64) - expected).max())
    return math.inf if math.isnan(difference) else difference
