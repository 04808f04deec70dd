"""Comparing and judging, on cases made by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baker.ab.compare import (
    TOLERANCES,
    Blame,
    CaseResult,
    Divergence,
    Spread,
    Step,
    Tolerance,
    blame,
    case_result,
    failures,
    observe,
    spread,
)
from baker.ab.recording import Best, Case
from baker.ab.report import Report
from models.program import STORAGE

NAN = float("nan")
CASE = Case(
    name="hand",
    prompt="p",
    prompt_ids=(2, 5, 9),
    greedy_ids=(1, 0, 2),
    text="t",
    best=(
        Best(token_ids=(1, 0), logprobs=(-0.25, -2.0)),
        Best(token_ids=(0, 2), logprobs=(-0.5, -0.75)),
        Best(token_ids=(2, 1), logprobs=(-1.0, -1.5)),
    ),
)
SAME = tuple(Step(token=b.token_ids[0], logprobs=b.logprobs) for b in CASE.best)
RESULT = case_result(CASE, SAME, None)
STRICT = Tolerance(largest=0.5, mean=0.25, exact_share=1.0, reason="a test")

steps = st.lists(
    st.tuples(*[st.floats(-30, 0)] * 2).map(lambda pair: Step(token=0, logprobs=pair)),
    min_size=3,
    max_size=3,
)


def test_the_recording_compared_with_itself() -> None:
    assert RESULT.equal == RESULT.steps == 3
    assert RESULT.exact
    assert RESULT.divergence is None
    assert RESULT.spread == Spread(largest=0, mean=0)
    assert RESULT.prompt_tokens == 3
    assert failures([RESULT], STRICT) == ()


def test_a_differing_token_is_found_with_its_gap() -> None:
    ours = (SAME[0], Step(token=2, logprobs=(-0.75, -0.5)), SAME[2])
    result = case_result(CASE, ours, None)
    assert result.equal == 2
    assert result.common_prefix == 1
    assert result.divergence == Divergence(step=1, token=2, recorded=0, gap=0.25)
    assert not result.exact
    assert result.spread.largest == 0.25
    assert result.spread.mean == pytest.approx(0.5 / 6)
    assert failures([result], STRICT) == ("all greedy tokens are equal in 0 of 1 cases, wanted 1",)


@settings(deadline=None)
@given(steps, steps, steps)
def test_the_total_is_no_larger_than_its_parts(
    compiled: list[Step], reference: list[Step], theirs: list[Step]
) -> None:
    best = tuple(Best(token_ids=(0, 1), logprobs=step.logprobs) for step in theirs)
    split = blame(replace(CASE, best=best), compiled, reference)
    total = spread(compiled, theirs)
    assert split.steps == 3
    assert total.largest <= split.model.largest + split.lowering.largest + 1e-9
    assert total.mean <= split.model.mean + split.lowering.mean + 1e-9
    assert split.model == spread(theirs, reference)


def test_blame_covers_the_steps_that_numpy_did() -> None:
    compiled = (SAME[0], SAME[1], Step(token=2, logprobs=(-9.0, -9.0)))
    assert blame(CASE, compiled, SAME[:2]).lowering.largest == 0


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("precision", TOLERANCES)
def test_what_is_no_number_fails_in_every_precision(bad: float, precision: str) -> None:
    logits = np.array([0.0, bad, 0.0], np.float32)
    ours = (observe(logits, CASE.best[0]), *SAME[1:])
    result = case_result(CASE, ours, None)
    assert result.spread == Spread(largest=math.inf, mean=math.inf)
    found = failures([result], TOLERANCES[precision])
    assert "hand: a log-probability is not a finite number" in found


def test_observe_takes_the_recordings_tokens() -> None:
    logits = np.log(np.array([0.5, 0.125, 0.25, 0.125], np.float32))
    step = observe(logits, Best(token_ids=(2, 1), logprobs=(-1.0, -2.0)))
    assert step.token == 0
    np.testing.assert_allclose(step.logprobs, np.log([0.25, 0.125]), rtol=1e-6)


def test_a_token_outside_the_vocabulary_is_our_bug() -> None:
    with pytest.raises(IndexError):
        observe(np.zeros(3, np.float32), Best(token_ids=(2, 3), logprobs=(-1.0, -2.0)))


def results(*, exact: int, of: int, largest: float = 0.0, mean: float = 0.0) -> list[CaseResult]:
    return [
        replace(
            RESULT,
            common_prefix=3 if number < exact else 2,
            spread=Spread(largest=largest, mean=mean),
        )
        for number in range(of)
    ]


@pytest.mark.parametrize(
    ("precision", "at_limit", "beyond"),
    [
        ("f32", {"exact": 10, "largest": 0.02, "mean": 0.002}, {"largest": 0.0201}),
        ("f32", {"exact": 10, "largest": 0.02, "mean": 0.002}, {"mean": 0.00201}),
        ("f32", {"exact": 10}, {"exact": 9}),
        ("bf16", {"exact": 7, "largest": 0.25, "mean": 0.1}, {"largest": 0.2501}),
        ("bf16", {"exact": 7}, {"exact": 6}),
    ],
)
def test_the_limits_of_each_precision(
    precision: str, at_limit: dict[str, float], beyond: dict[str, float]
) -> None:
    tolerance = TOLERANCES[precision]
    assert failures(results(of=10, **at_limit), tolerance) == ()  # type: ignore[arg-type]
    assert failures(results(of=10, **{**at_limit, **beyond}), tolerance)  # type: ignore[arg-type]


def test_int8_is_reported_and_not_judged() -> None:
    assert failures(results(exact=0, of=10, largest=9.0, mean=3.0), TOLERANCES["int8"]) == ()


def test_every_precision_has_a_tolerance_with_a_reason() -> None:
    assert TOLERANCES.keys() == STORAGE.keys()
    assert all(tolerance.reason for tolerance in TOLERANCES.values())


def test_the_report_is_strict_json_even_without_numbers() -> None:
    nothing = Spread(largest=math.inf, mean=math.inf)
    result = replace(
        RESULT, spread=nothing, blame=Blame(steps=2, model=RESULT.spread, lowering=nothing)
    )
    report = Report(
        bundle="b",
        precision="int8",
        recording={"engine": "by hand"},
        tolerance=TOLERANCES["int8"],
        cases=(RESULT, result),
        failures=("x",),
    )
    data = json.loads(report.to_json(), parse_constant=pytest.fail)
    assert data["cases"][1]["spread"] == {"largest": None, "mean": None}
    assert data["cases"][1]["blame"]["model"] == {"largest": 0, "mean": 0}
    assert data["tolerance"]["largest"] is None
    assert data["passed"] is False
    assert data["summary"].startswith("int8: 2 of 2 answers equal, 6 of 6 tokens")
