"""The results of `ab` for people (tables) and for programs (JSON). Computes nothing."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from baker.ab.compare import Blame, CaseResult, Divergence, Tolerance


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that one call of `ab` found out."""

    bundle: str
    precision: str
    recording: Mapping[str, str]
    tolerance: Tolerance
    cases: Sequence[CaseResult]
    failures: Sequence[str]

    @property
    def summary(self) -> str:
        """The result as one line."""
        exact = sum(case.exact for case in self.cases)
        equal, steps = (sum(getattr(c, key) for c in self.cases) for key in ("equal", "steps"))
        mean = sum(case.spread.mean * case.steps for case in self.cases) / steps
        largest = max(case.spread.largest for case in self.cases)
        verdict = "outside the tolerance" if self.failures else "within the tolerance"
        return (
            f"{self.precision}: {exact} of {len(self.cases)} answers equal, {equal} of {steps} "
            f"tokens equal teacher-forced, log-probabilities within {largest:.4f}, "
            f"mean {mean:.5f}: {verdict}"
        )

    def to_json(self) -> str:
        """The whole report; a difference that is not a finite number is null, as is no limit."""
        data = {**dataclasses.asdict(self), "summary": self.summary, "passed": not self.failures}
        return json.dumps(_finite(data), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def show(self, console: Console) -> None:
        """Print a line for each case, where its difference comes from, failures and summary."""
        results = _table("against the reference (differences in nats)", *_RESULTS)
        origins = _table("where the difference comes from (first steps)", *_ORIGINS)
        for case in self.cases:
            results.add_row(case.name, *_result_cells(case))
            if case.blame is not None:
                origins.add_row(case.name, *_origin_cells(case.blame))
        console.print(results, "")
        if origins.row_count:
            console.print(origins, "")
        for sentence in self.failures:
            console.print(sentence, style="red", highlight=False, markup=False)
        console.print(self.summary, style="red" if self.failures else "green", highlight=False)


_RESULTS = ("prompt", "equal", "until", "first to differ", "largest", "mean")
_ORIGINS = ("steps", "NumPy - reference", "mean", "compiled - NumPy", "mean")


def _table(title: str, *headings: str) -> Table:
    table = Table("case", title=title, title_justify="left", box=None, padding=(0, 1))
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _result_cells(case: CaseResult) -> tuple[str, ...]:
    return (
        f"{case.prompt_tokens}",
        f"{case.equal}/{case.steps}",
        f"{case.common_prefix}/{case.steps}",
        _divergence(case.divergence),
        f"{case.spread.largest:.4f}",
        f"{case.spread.mean:.5f}",
    )


def _origin_cells(blame: Blame) -> tuple[str, ...]:
    spreads = (blame.model, blame.lowering)
    numbers = (number for spread in spreads for number in (spread.largest, spread.mean))
    return (f"{blame.steps}", *(f"{number:.1e}" for number in numbers))


def _divergence(divergence: Divergence | None) -> str:
    return "-" if divergence is None else f"{divergence.step} (gap {divergence.gap:.3f})"


def _finite(value: Any) -> Any:
    """The same data with None for infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
