"""Comparing: logits against a recording, steps summed up to cases, cases judged by a tolerance.

Pure: arrays and recordings in, numbers out. It does not know which engine computed the logits.

A difference is always of the natural-log probabilities (in float64) of the tokens that the
recording kept at that step. It is infinite where one of the two is not a number, so that no
comparison with a tolerance can pass by accident.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baker.ab.replay import greedy, log_softmax

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from baker.ab.recording import Best, Case


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What a bundle of one precision may differ by, and why so much.

    largest       difference at any step of any case
    mean          difference, the mean of a case
    exact_share   of the cases, how many have every greedy token equal
    """

    largest: float
    mean: float
    exact_share: float
    reason: str


# The one place where a precision's tolerances against an F32 recording of llama.cpp stand.
TOLERANCES = {
    "f32": Tolerance(
        largest=0.02,
        mean=0.002,
        exact_share=1.0,
        reason="a NumPy forward in f32 comes within 0.0102, mean 0.0013, with all tokens equal: "
        "llama.cpp takes its GELU from a table in f16",
    ),
    "bf16": Tolerance(
        largest=0.25,
        mean=math.inf,
        exact_share=0.7,
        reason="8 bits of fraction: on BF16 GGUFs llama.cpp itself differs from its F32 by 0.146 "
        "(Gemma 3 270M, with all tokens equal in 8 of 10 cases) and 0.164 (SmolLM2 135M)",
    ),
    "int8": Tolerance(
        largest=math.inf,
        mean=math.inf,
        exact_share=0.0,
        reason="reported, not judged: the loss is the quantisation's; only NaN fails",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One position: the most probable token, and log-probabilities of the recording's tokens."""

    token: int
    logprobs: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The largest and the mean of some differences, in nats. Infinite if one is not a number."""

    largest: float
    mean: float


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The first step whose most probable token is not the recorded one.

    `gap` is by how much the recording's best led its second there, in nats: small means a toss-up.
    """

    step: int
    token: int
    recorded: int
    gap: float


@dataclass(frozen=True, kw_only=True)
class Blame:
    """Where a difference comes from, over the first `steps` steps.

    model      NumPy against the recording: the model's formulas and the weights
    lowering   the compiled program against NumPy: compiler, kernels, runtime
    """

    steps: int
    model: Spread
    lowering: Spread


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """A case, teacher-forced on its `steps` recorded tokens.

    `common_prefix` is how many tokens of the bundle's own greedy answer are the recorded ones: up
    to the first difference, what it reads is the same with and without a teacher.
    """

    name: str
    prompt_tokens: int
    steps: int
    equal: int
    divergence: Divergence | None
    common_prefix: int
    spread: Spread
    blame: Blame | None

    @property
    def exact(self) -> bool:
        """Every greedy token is the recorded one."""
        return self.common_prefix == self.steps


def observe(logits: NDArray[np.float32], best: Best) -> Step:
    """What is kept of the logits f32 (V,) of one step."""
    logprobs = log_softmax(logits)[list(best.token_ids)]
    return Step(token=greedy(logits), logprobs=tuple(float(value) for value in logprobs))


def recorded_steps(case: Case) -> tuple[Step, ...]:
    """The recording itself, as if a runtime had been observed."""
    return tuple(Step(token=best.token_ids[0], logprobs=best.logprobs) for best in case.best)


def spread(ours: Sequence[Step], theirs: Sequence[Step]) -> Spread:
    """The differences between two equally long series of steps of one case."""
    pairs = zip(ours, theirs, strict=True)
    differences = np.abs(
        [np.subtract(one.logprobs, other.logprobs, dtype=np.float64) for one, other in pairs]
    )
    if not np.isfinite(differences).all():
        return Spread(largest=math.inf, mean=math.inf)
    return Spread(largest=float(differences.max()), mean=float(differences.mean()))


def first_divergence(case: Case, steps: Sequence[Step]) -> Divergence | None:
    """The first step whose token differs from the recorded one, if any does."""
    for index, (step, token, best) in enumerate(
        zip(steps, case.greedy_ids, case.best, strict=True)
    ):
        if step.token != token:
            return Divergence(step=index, token=step.token, recorded=token, gap=best.gap)
    return None


def case_result(case: Case, steps: Sequence[Step], blame: Blame | None) -> CaseResult:
    """Sum a case up: `steps` are teacher-forced, one for each recorded token."""
    divergence = first_divergence(case, steps)
    return CaseResult(
        name=case.name,
        prompt_tokens=len(case.prompt_ids),
        steps=len(case.greedy_ids),
        equal=sum(step.token == token for step, token in zip(steps, case.greedy_ids, strict=True)),
        divergence=divergence,
        common_prefix=len(steps) if divergence is None else divergence.step,
        spread=spread(steps, recorded_steps(case)),
        blame=blame,
    )


def blame(case: Case, compiled: Sequence[Step], reference: Sequence[Step]) -> Blame:
    """Split the difference over the steps that the reference (NumPy) was run for."""
    steps = len(reference)
    return Blame(
        steps=steps,
        model=spread(reference, recorded_steps(case)[:steps]),
        lowering=spread(compiled[:steps], reference),
    )


def failures(results: Iterable[CaseResult], tolerance: Tolerance) -> tuple[str, ...]:
    """Each way in which the results are outside the tolerance, as a sentence."""
    results = tuple(results)
    sentences = []
    for result in results:
        if not math.isfinite(result.spread.largest):
            sentences.append(f"{result.name}: a log-probability is not a finite number")
        elif result.spread.largest > tolerance.largest:
            sentences.append(
                f"{result.name}: a log-probability differs by {result.spread.largest:.4f}, "
                f"wanted at most {tolerance.largest}"
            )
        elif result.spread.mean > tolerance.mean:
            sentences.append(
                f"{result.name}: log-probabilities differ by {result.spread.mean:.5f} in the mean, "
                f"wanted at most {tolerance.mean}"
            )
    exact = sum(result.exact for result in results)
    needed = math.ceil(tolerance.exact_share * len(results))
    if exact < needed:
        sentences.append(
            f"all greedy tokens are equal in {exact} of {len(results)} cases, wanted {needed}"
        )
    return tuple(sentences)
