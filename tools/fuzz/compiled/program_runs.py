"""Compile many random programs as one module, run them, and compare each with its exact value.

A batch runs in a process of its own, since a fault of the compiler or of compiled code may end it.
What is found is made smaller: steps are dropped for as long as the same thing is found.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.dsl.types import DslError
from tools.fuzz.compiled import long_run
from tools.fuzz.compiled.long_run import FindingFile
from tools.fuzz.compiled.program_bounds import exact, tiny, unit
from tools.fuzz.compiled.program_compiler import compile_graphs
from tools.fuzz.compiled.program_rules import make
from tools.fuzz.compiled.programs import FORMS, Program, Step, results_of, value_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor
    from tools.fuzz.compiled.long_run import State
    from tools.fuzz.compiled.program_bounds import Bounded
    from tools.fuzz.compiled.programs import Case

    Array = NDArray[Any]

# Programs of a batch, which has one process, of a module and of a function. Each costs something
# once; for a program that the compiler rejects, the others of its module are compiled again.
BATCH, MODULE, FUNCTION = 256, 32, 8
# Findings of a kind that are made smaller, and how often, at most: each time compiles programs.
MAX_SHRUNK, MAX_ROUNDS = 5, 12
# For a batch, on a machine that does other things too.
SECONDS = 3600.0


@dataclass(frozen=True)
class Finding:
    """A fault that a program shows.

    what    "compiled" or "numpy", which differ from the exact value; "refused" by the compiler;
            "crash" of the process
    form    of FORMS
    detail  one line
    """

    what: str
    form: str
    detail: str
    program: Program


def cases_of(program: Program, name: str) -> Iterator[tuple[str, Case]]:
    """The cases of a program to compile, by form, except those that the DSL refuses.

    The value takes the place of a gradient that a program does not have.
    """
    forms = [program.form, "value"] if program.form else ["value", "loss"]
    for form in forms:
        with contextlib.suppress(DslError):
            case = FORMS[form](program, f"{name}_{form}")
            if case is not None:
                module_text("module", [case.graph], "model")
                yield form, case
                if program.form:
                    return


def check(programs: Sequence[Program]) -> tuple[int, list[Finding]]:
    """How many functions were compared, and what was found, in this process."""
    compared, all_findings = 0, []
    for first in range(0, len(programs), MODULE):
        counted, findings = _check_module(programs[first : first + MODULE])
        compared += counted
        all_findings += findings
    return compared, all_findings


def _check_module(programs: Sequence[Program]) -> tuple[int, list[Finding]]:
    named = {
        case.graph.name: (program, form, case)
        for i, program in enumerate(programs)
        for form, case in cases_of(program, f"p{i}")
    }
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        graphs = [case.graph for _, _, case in named.values()]
        compiled, refused = compile_graphs(graphs, Path(folder), together=FUNCTION)
        arrays = {name: case.arrays for name, (_, _, case) in named.items()}
        results = compiled.call(arrays) if compiled else {}
    for name, (program, form, case) in named.items():
        if name in refused:
            findings.append(Finding("refused", form, refused[name], program))
            continue
        expected = exact(case.graph, case.arrays)
        with np.errstate(all="ignore"):
            by_numpy = evaluate(case.graph, list(case.arrays), {})
        for what, values in (("numpy", by_numpy), ("compiled", results[name])):
            wrong = difference(case.graph.outputs, values, expected)
            if wrong:
                findings.append(Finding(what, form, wrong, program))
    return len(named) - len(refused), findings


def difference(
    outputs: Sequence[Tensor], values: Sequence[Array], expected: Sequence[Bounded]
) -> str:
    """The first element that is out of bounds; nothing if there is none."""
    for i, (output, value, bounded) in enumerate(zip(outputs, values, expected, strict=True)):
        assert value.shape == bounded.value.shape
        actual = np.asarray(value, np.float64 if output.dtype.is_float else value.dtype)
        with np.errstate(all="ignore"):
            size = np.abs(np.asarray(bounded.value, np.float64))
            limit = bounded.error + unit(output.dtype) * size + tiny(output.dtype)
            apart = np.abs(actual.astype(np.float64) - bounded.value)
            right = (apart <= limit) | (actual == bounded.value) | np.isinf(bounded.error)
            right |= np.isnan(actual.astype(np.float64)) & np.isnan(
                bounded.value.astype(np.float64)
            )
        if not right.all():
            at = tuple(int(j) for j in np.argwhere(~right)[0])
            return (
                f"result {i} {output.type} at {at}: {actual[at]!r}, exactly {bounded.value[at]!r} "
                f"+- {bounded.error[at]:.2g}; {int((~right).sum())} of {right.size} elements"
            )
    return ""


# --- in a process of its own


def check_apart(programs: Sequence[Program]) -> tuple[int, list[Finding]]:
    """As `check`, in another process; one that ends or hangs is a finding too."""
    request = json.dumps([[program.to_json(), program.seed, program.form] for program in programs])
    command = [sys.executable, "-m", "tools.fuzz.compiled.program_runs"]
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return _halves(programs, f"took more than {SECONDS:g} s")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1][:200]
        return _halves(programs, f"ended with {done.returncode}: {last}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["compared"], [
        Finding(what, form, detail, programs[i]) for what, form, detail, i in answer["found"]
    ]


def _halves(programs: Sequence[Program], reason: str) -> tuple[int, list[Finding]]:
    if len(programs) == 1:
        return 0, [Finding("crash", "value", reason, programs[0])]
    middle = len(programs) // 2
    left, right = check_apart(programs[:middle]), check_apart(programs[middle:])
    return left[0] + right[0], left[1] + right[1]


def _answer() -> None:
    """The other process: programs come in as JSON, findings go out."""
    programs = []
    for steps, seed, form in json.load(sys.stdin):
        programs.append(Program(Program.from_json(steps).steps, seed, form))
    compared, findings = check(programs)
    places = {id(program): i for i, program in enumerate(programs)}
    rows = [
        [finding.what, finding.form, finding.detail, places[id(finding.program)]]
        for finding in findings
    ]
    sys.stdout.write("\n" + json.dumps({"compared": compared, "found": rows}) + "\n")


# --- smaller


def shrink(finding: Finding) -> Finding:
    """The smallest program in which the same thing is found, with steps dropped or cut off."""
    alone = dataclasses.replace(finding.program, form=finding.form)
    if not any(_alike(other, finding) for other in check_apart([alone])[1]):
        return dataclasses.replace(finding, detail=f"beside other programs: {finding.detail}")
    best = dataclasses.replace(finding, program=alone)
    for _ in range(MAX_ROUNDS):
        smaller = list(_smaller(best.program))
        if not smaller:
            break
        _, findings = check_apart(smaller)
        alike = [other for other in findings if _alike(other, best)]
        if not alike:
            break
        best = min(alike, key=lambda other: _size(other.program))
    return best


def _alike(finding: Finding, other: Finding) -> bool:
    if (finding.what, finding.form) != (other.what, other.form):
        return False
    return finding.what != "refused" or finding.detail[:40] == other.detail[:40]


def _size(program: Program) -> tuple[int, int]:
    elements = sum(int(np.prod(step.attrs["shape"])) for step in program.steps
                   if step.name == "input")  # fmt: skip
    return len(program.steps), elements


def _smaller(program: Program) -> Iterator[Program]:
    """The program without one result, without the steps after one, or with an input for a step."""
    steps = program.steps
    results = results_of(program)
    for i in results if len(results) > 1 else ():
        yield _pruned(program, [kept for kept in results if kept != i])
    for i, step in enumerate(steps):
        if step.name == "input":
            if step.attrs["fill"] not in ("normal", "indices", "distinct"):
                yield _kept(program, i, Step("input", (), {**step.attrs, "fill": "normal"}))
            continue
        before = _pruned(dataclasses.replace(program, steps=steps[: i + 1]), [i])
        yield before
        case = value_case(before, "f")
        type_ = case.graph.outputs[-1].type
        attrs = {
            "shape": list(type_.shape),
            "dtype": type_.dtype.label,
            "fill": "normal",
            "seed": i,
        }
        yield _kept(program, i, Step("input", (), attrs))


def _kept(program: Program, index: int, step: Step) -> Program:
    """The program with one step replaced, and without what nothing reads then."""
    results = results_of(program)
    steps = (*program.steps[:index], step, *program.steps[index + 1 :])
    return _pruned(dataclasses.replace(program, steps=steps), results)


def _pruned(program: Program, results: Iterable[int]) -> Program:
    needed = set(results)
    for i in reversed(range(len(program.steps))):
        if i in needed:
            needed.update(program.steps[i].reads)
    places = {old: new for new, old in enumerate(sorted(needed))}
    kept = [program.steps[old] for old in sorted(needed)]
    steps = tuple(
        Step(step.name, tuple(places[i] for i in step.reads), step.attrs) for step in kept
    )
    return dataclasses.replace(program, steps=steps)


# --- for as long as one likes


def run(seed: int, minutes: float, keep: Path, say: Callable[[str], None]) -> int:
    """As long_run.run: batches of programs."""
    return long_run.run("programs", seed, minutes, keep, say, _check_batch)


def _check_batch(seed: int, state: State) -> tuple[int, int, list[FindingFile]]:
    """BATCH programs from a seed on."""
    compared, findings = check_apart([make(seed + i) for i in range(BATCH)])
    causes = Counter(state.causes)
    files = []
    for finding in findings:
        cause = (
            f"{finding.what} {finding.detail[:30] if finding.what == 'refused' else finding.form}"
        )
        causes[cause] += 1
        small = shrink(finding) if causes[cause] <= MAX_SHRUNK else finding
        name = f"{finding.what}_{finding.form}_{finding.program.seed}"
        record = {"detail": small.detail, "steps": small.program.to_json()}
        steps = " ".join(step.name for step in small.program.steps)
        title = f"{finding.what}, {finding.form}, seed {finding.program.seed}"
        text = f"{title}: {small.detail}\n    {steps}"
        files.append(FindingFile(cause, name, record, text))
    return BATCH, compared, files


if __name__ == "__main__":
    _answer()
