"""The report of a comparison, field by field as in report.json, and its statistics.

`Report.model_json_schema()` is the JSON Schema of report.json.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from hearthd.baker.compare.measurement.position_metrics import PositionResult
from hearthd.baker.compare.measurement.side_by_side import (
    ComparisonResult,
    NotablePosition,
    PassageResult,
)
from hearthd.baker.compare.sides.side import Side, SideDescription, SideType
from hearthd.baker.compare.sides.vocabulary import Vocabulary, tokens_text

_DIGITS = 6  # significant digits of every number
_BEFORE, _AFTER = 24, 6  # tokens of context around a position


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SideInfo(_Model):
    """One side of the comparison."""

    kind: SideType
    name: str = Field(description="As given on the command line.")
    gives: str = Field(description="The probabilities that it provides at a position.")
    details: dict[str, str] = Field(description="Versions, precision and digests.")


class Summary(_Model):
    """Statistics of some positions. KL divergences are in nats."""

    positions: int
    kl_mean: float = Field(description="Mean of KL(A || B).")
    kl_error: float = Field(description="Standard error of that mean.")
    kl_median: float
    kl_p90: float
    kl_p99: float
    kl_max: float
    agree: int = Field(description="Positions with the same most probable token.")
    mean_difference: float = Field(
        description="Mean difference of the log-probabilities of A's top five tokens."
    )
    largest_difference: float = Field(description="The largest of these differences.")
    perplexity_a: float | None = Field(description="On the passages; null if it is unknown.")
    perplexity_b: float | None = Field(description="The same for B.")
    mass_a: float = Field(
        description="Mean probability of the tokens that are compared one by one."
    )
    mass_b: float = Field(description="The same for B.")

    @property
    def agreement(self) -> float:
        """The fraction of positions with the same most probable token."""
        return self.agree / self.positions


class Candidate(_Model):
    """A token with its probability on both sides; null if it is unknown."""

    token_id: int
    text: str
    probability_a: float | None
    probability_b: float | None


class ReportedPosition(_Model):
    """A position in a passage, with the top tokens of both sides."""

    passage: str
    position: int = Field(description="Index of the predicted token.")
    step: int = Field(description="The same, counted from the first compared position.")
    kl: float
    before: str = Field(description="The text before the token.")
    token: str = Field(description="The next token in the passage.")
    after: str = Field(description="The text after the token.")
    candidates: list[Candidate] = Field(description="The top five tokens of A, then of B.")


class PassageReport(_Model):
    """One passage. The lists have one entry per compared position."""

    name: str
    kind: Literal["text", "answer"]
    tokens: int
    start: int
    summary: Summary
    first_difference: ReportedPosition | None = Field(
        description="The first position where the top tokens differ."
    )
    kl: list[float]
    agree: list[bool]

    @property
    def same_steps(self) -> int:
        """The number of positions before the first where the top tokens differ."""
        return len(self.kl) if self.first_difference is None else self.first_difference.step


class Report(_Model):
    """A comparison of B with A."""

    format: Literal[1] = 1
    made: str = Field(description="Date and time, ISO 8601.")
    hearth: str = Field(description="The version of Hearth.")
    a: SideInfo
    b: SideInfo
    exact: bool = Field(description="Whether KL covers the whole vocabulary.")
    computed: str = Field(description="How the KL divergence is computed, in words.")
    texts: Summary | None = Field(description="Statistics of all texts.")
    answers: Summary | None = Field(description="Statistics of all answers.")
    passages: list[PassageReport]
    worst: list[ReportedPosition] = Field(description="The positions with the largest KL.")
    notes: list[str] = Field(description="Texts or prompts that were cut or left out.")
    failures: list[str] = Field(description="A sentence for each limit that is exceeded.")


def build_report(
    a: Side,
    b: Side,
    result: ComparisonResult,
    vocabulary: Vocabulary | None,
    notes: Sequence[str],
    *,
    created: str,
    hearth: str,
) -> Report:
    """Build the report of a result; `created` is a time as ISO 8601. `failures` stays empty."""
    positions = [position for passage in result.passages for position in passage.positions]
    return Report(
        made=created,
        hearth=hearth,
        a=_info(a.about),
        b=_info(b.about),
        exact=all(position.exact for position in positions),
        computed=_computed(positions),
        texts=_summary_of(result, "text"),
        answers=_summary_of(result, "answer"),
        passages=[_passage(passage, vocabulary) for passage in result.passages],
        worst=[_position(notable, vocabulary) for notable in result.worst],
        notes=list(notes),
        failures=[],
    )


def summarize(positions: Sequence[PositionResult]) -> Summary:
    """Statistics of at least one position."""
    kl = np.array([position.kl for position in positions])
    differences = [value for position in positions for value in position.differences]
    error = float(kl.std(ddof=1)) / math.sqrt(len(kl)) if len(kl) > 1 else 0.0
    median, p90, p99 = (float(value) for value in np.quantile(kl, (0.5, 0.9, 0.99)))
    return Summary(
        positions=len(positions),
        kl_mean=_rounded(float(kl.mean())),
        kl_error=_rounded(error),
        kl_median=_rounded(median),
        kl_p90=_rounded(p90),
        kl_p99=_rounded(p99),
        kl_max=_rounded(float(kl.max())),
        agree=sum(position.agree for position in positions),
        mean_difference=_rounded(float(np.mean(differences)) if differences else 0.0),
        largest_difference=_rounded(max(differences, default=0.0)),
        perplexity_a=_perplexity([position.logprob_a for position in positions]),
        perplexity_b=_perplexity([position.logprob_b for position in positions]),
        mass_a=_rounded(float(np.mean([position.mass_a for position in positions]))),
        mass_b=_rounded(float(np.mean([position.mass_b for position in positions]))),
    )


def _perplexity(logprobs: Sequence[float | None]) -> float | None:
    """exp of the mean of -log p; None if one is unknown."""
    known = [value for value in logprobs if value is not None]
    return None if len(known) < len(logprobs) else _rounded(math.exp(-float(np.mean(known))))


def _computed(positions: Sequence[PositionResult]) -> str:
    if all(position.exact for position in positions):
        return "KL(A || B) over the whole vocabulary, exact."
    mass_a = float(np.mean([position.mass_a for position in positions]))
    mass_b = float(np.mean([position.mass_b for position in positions]))
    return (
        "A lower bound of KL(A || B): only tokens whose probability both sides provide are "
        "compared one by one; all others count as one token. On average these others have "
        f"{1 - mass_a:.2%} of A's probability and {1 - mass_b:.2%} of B's."
    )


def _summary_of(result: ComparisonResult, passage_type: str) -> Summary | None:
    positions = [
        position
        for passage in result.passages
        if passage.passage.passage_type == passage_type
        for position in passage.positions
    ]
    return summarize(positions) if positions else None


def _passage(result: PassageResult, vocabulary: Vocabulary | None) -> PassageReport:
    passage, first = result.passage, result.first_difference
    return PassageReport(
        name=passage.name,
        kind=passage.passage_type,
        tokens=len(passage.token_ids),
        start=passage.start,
        summary=summarize(result.positions),
        first_difference=None if first is None else _position(first, vocabulary),
        kl=[_rounded(position.kl) for position in result.positions],
        agree=[position.agree for position in result.positions],
    )


def _position(notable: NotablePosition, vocabulary: Vocabulary | None) -> ReportedPosition:
    ids, position = notable.passage.token_ids, notable.position
    return ReportedPosition(
        passage=notable.passage.name,
        position=position,
        step=position - notable.passage.start,
        kl=_rounded(notable.kl),
        before=tokens_text(vocabulary, ids[max(position - _BEFORE, 0) : position]),
        token=tokens_text(vocabulary, ids[position : position + 1]),
        after=tokens_text(vocabulary, ids[position + 1 : position + 1 + _AFTER]),
        candidates=[
            Candidate(
                token_id=token,
                text=tokens_text(vocabulary, [token]),
                probability_a=_probability(a),
                probability_b=_probability(b),
            )
            for token, a, b in notable.rows
        ],
    )


def _probability(logprob: float | None) -> float | None:
    return None if logprob is None else _rounded(math.exp(logprob))


def _info(about: SideDescription) -> SideInfo:
    return SideInfo(
        kind=about.side_type, name=about.name, gives=about.gives, details=dict(about.details)
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
