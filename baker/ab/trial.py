"""A trial: a bundle's runtime, its NumPy reference and a recording, brought together.

Knows runtimes and recordings, and who is asked what in which order; it prints nothing and judges
nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from baker.ab.compare import blame, case_result, observe
from baker.ab.llama import EXACT, LlamaCpp
from baker.ab.recording import Recording, RecordingError
from baker.ab.replay import record, teacher_forced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from baker.ab.compare import CaseResult, Step
    from baker.ab.recording import Case
    from server.runtime.base import Reader

# Tokens that are recorded of each answer.
STEPS = 64
# Name and text of the prompts to take when there is no recording to take them from.
PROMPTS = Path(__file__).with_name("prompts.json")


def default_prompts() -> dict[str, str]:
    """Ten prompts by name, stories, code, tables, three languages, up to 1355 Gemma tokens."""
    prompts: dict[str, str] = json.loads(PROMPTS.read_text(encoding="utf-8"))
    return prompts


def record_llama(
    model: Path, prompts: Mapping[str, str], context: int, announce: Callable[[str], None]
) -> Recording:
    """Let llama.cpp answer the prompts, as exactly as it can; raises LlamaError.

    `context` is in positions; `announce` is called with the name of each prompt as it begins.
    """
    llama = LlamaCpp(model, context=context, threads=None, profile=EXACT)
    cases = []
    for name, prompt in prompts.items():
        announce(f"llama.cpp answers {name}")
        cases.append(record(llama, llama, name, prompt, STEPS))
    engine = f"llama-cpp-python {llama.version}, CPU, KV cache in f32, flash attention off"
    llama.close()
    return Recording(
        meta={
            "model": model.name,
            "engine": engine,
            "sampling": f"greedy, {STEPS} tokens, end-of-sequence ignored",
            "top5": "per generated token: [token id, natural-log probability], best first",
        },
        cases=tuple(cases),
    )


def check_fits(recording: Recording, runtime: Reader) -> None:
    """Raise RecordingError, naming the case, if a runtime cannot read a recorded case."""
    for case in recording.cases:
        if case.positions > runtime.context:
            raise RecordingError(
                f"{case.name} takes {case.positions} positions and the bundle has "
                f"{runtime.context}: bake it with `--context {case.positions}` or more"
            )
        largest = max(*case.prompt_ids, *(token for best in case.best for token in best.token_ids))
        if largest >= runtime.vocab_size:
            raise RecordingError(
                f"{case.name} has token {largest} and the bundle knows {runtime.vocab_size}: "
                "it was recorded with another model"
            )


def run(
    runtime: Reader,
    reference: Reader | None,
    recording: Recording,
    blame_steps: int,
    announce: Callable[[str], None],
) -> Iterator[CaseResult]:
    """Compare case by case; with a `reference`, split the blame over `blame_steps` steps of each.

    Raises RecordingError, before anything is run, if a case does not fit the runtime.
    """
    check_fits(recording, runtime)
    for case in recording.cases:
        announce(f"the bundle reads {case.name}")
        compiled = _observed(runtime, case, len(case.greedy_ids))
        split = None
        if reference is not None:
            announce(f"NumPy reads {case.name}")
            split = blame(case, compiled, _observed(reference, case, blame_steps))
        yield case_result(case, compiled, split)


def _observed(runtime: Reader, case: Case, steps: int) -> tuple[Step, ...]:
    """Teacher-forced, what is kept of each of the first `steps` steps."""
    logits = teacher_forced(runtime, case, steps)
    return tuple(observe(row, best) for row, best in zip(logits, case.best, strict=False))
