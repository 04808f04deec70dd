"""The fuzzer of programs in small: what it found once, and that it sees what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hearthd.models.dsl.evaluate import evaluate
from tests.models.compiled import Loaded
from tools.fuzz.compiled import program_runs
from tools.fuzz.compiled.program_bounds import exact
from tools.fuzz.compiled.program_compiler import CHECKED, FASTER, compile_all
from tools.fuzz.compiled.program_rules import make
from tools.fuzz.compiled.program_runs import Finding, cases_of, check, shrink
from tools.fuzz.compiled.programs import Program, value_case

CORPUS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "programs.json").read_text(encoding="utf-8")
)


@pytest.mark.nightly
def test_earlier_findings_and_a_random_program_are_right() -> None:
    programs = [
        Program(Program.from_json(steps).steps, form="gradient" if "gradient alone" in name else "")
        for name, steps in CORPUS.items()
    ]
    compared, findings = check([*programs, make(1)])
    assert findings == []
    assert compared > len(programs) + 1  # with gradients


@pytest.mark.nightly
def test_random_programs_are_right() -> None:
    """Those that the compiler takes."""
    programs = [*map(make, (0, 2, 3, 4, 6))]
    assert {program.form for program in programs} == {"value", "gradient"}
    compared, findings = check(programs)
    assert findings == []
    assert compared == len(programs)


@pytest.mark.parametrize("first", range(0, 200, 50))
@np.errstate(all="ignore")
def test_numpy_is_within_the_bounds(first: int) -> None:
    informative = 0
    for seed in range(first, first + 50):
        for _, case in cases_of(make(seed), "f"):
            values = evaluate(case.graph, list(case.arrays), {})
            expected = exact(case.graph, case.arrays)
            assert not program_runs.difference(case.graph.outputs, values, expected), seed
            informative += sum(int(np.isfinite(one.error).sum()) for one in expected)
    assert informative > 1000


@pytest.mark.parametrize("name", ["softmax of 2 x 3 rows: an operand packed across matrices"])
def test_bounds_are_narrow(name: str) -> None:
    case = value_case(Program.from_json(CORPUS[name]), "f")
    (one,) = exact(case.graph, case.arrays)
    assert one.error.max() < 1e-5


def test_a_wrong_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program.from_json(CORPUS["a power of negative numbers"])
    called = Loaded.call
    monkeypatch.setattr(
        Loaded, "call", lambda self, graph, xs: [y * 1.001 for y in called(self, graph, xs)]
    )
    _, findings = check([program])
    assert {(one.what, one.form) for one in findings} == {
        ("compiled", "value"),
        ("compiled", "loss"),
    }


def test_a_program_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the op that is wrong, and an input."""
    wrong = next(
        program
        for program in map(make, range(1000))
        if any(step.name == "erf" for step in program.steps) and len(program.steps) > 6
    )

    def fake(programs: Any) -> tuple[int, list[Finding]]:
        names = [{step.name for step in program.steps} for program in programs]
        wrong_programs = [p for p, used in zip(programs, names, strict=True) if "erf" in used]
        return 0, [Finding("compiled", "value", "", program) for program in wrong_programs]

    monkeypatch.setattr(program_runs, "check_apart", fake)
    smallest = shrink(Finding("compiled", "value", "", wrong)).program
    assert [step.name for step in smallest.steps] == ["input", "erf"]


def test_a_seed_makes_the_same_program_and_json_keeps_it() -> None:
    program = make(17)
    assert program == make(17)
    assert Program.from_json(json.loads(json.dumps(program.to_json()))).steps == program.steps


@pytest.mark.nightly
def test_the_flags_that_save_time_do_not_change_what_is_computed(tmp_path: Path) -> None:
    cases = [case for seed in (1, 3) for _, case in cases_of(make(seed), f"s{seed}")]
    results = []
    for name, flags in (("checked", CHECKED), ("faster", FASTER)):
        (tmp_path / name).mkdir()
        assert not compile_all([case.graph for case in cases], tmp_path / name, flags)
        loaded = Loaded(tmp_path / name / "module.vmfb")
        results.append(
            [value.tobytes() for case in cases for value in loaded.call(case.graph, case.arrays)]
        )
    assert results[0] == results[1]


def test_a_run_continues_where_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a finding is written, counted and, for the first of its kind, made smaller."""
    seeds: list[int] = []

    def fake(programs: Any) -> tuple[int, list[Finding]]:
        seeds.extend(program.seed for program in programs)
        return 2 * len(programs), [Finding("refused", "value", "a reason", programs[0])]

    monkeypatch.setattr(program_runs, "check_apart", fake)
    monkeypatch.setattr(program_runs, "shrink", lambda finding: finding)
    said: list[str] = []
    for _ in range(2):
        monkeypatch.setattr("time.monotonic", iter((0.0, 0.0, 1.0, 90.0)).__next__)
        assert program_runs.run(7, 1.0, tmp_path, said.append) == 1
    assert seeds == list(range(7, 7 + 2 * program_runs.BATCH))
    assert f"{2 * program_runs.BATCH} programs, {4 * program_runs.BATCH} functions" in said[-1]
    state = json.loads((tmp_path / "programs_7_state.json").read_text(encoding="utf-8"))
    assert state["causes"] == {"refused a reason": 2}
    assert len(list(tmp_path.glob("refused_value_*.json"))) == 2
