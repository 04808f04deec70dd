"""The report of a comparison: what is in report.json, field by field, and how it is summed up.

`Report.model_json_schema()` is its JSON Schema. This file draws nothing and runs no model.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from baker.compare.metrics import Measured
from baker.compare.sides.side import About, Kind, Side
from baker.compare.sides.side_tokens import Vocabulary, spelled
from baker.compare.trial import Candidates, Reading, Trial

_DIGITS = 6  # significant ones, kept of each number
_BEFORE, _AFTER = 24, 6  # tokens of context around a place


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SideInfo(_Model):
    """One side of the comparison."""

    kind: Kind
    name: str = Field(description="What was named on the command line.")
    gives: str = Field(description="What it tells of a position.")
    details: dict[str, str] = Field(description="Versions, precision, digests.")


class Summary(_Model):
    """Some positions summed up. Divergences are in nats."""

    positions: int
    kl_mean: float = Field(description="Mean of KL(A || B).")
    kl_error: float = Field(description="Standard error of that mean.")
    kl_median: float
    kl_p90: float
    kl_p99: float
    kl_max: float
    agree: int = Field(description="At how many positions the most probable token is the same.")
    mean_difference: float = Field(description="Of log-probabilities of A's best five tokens.")
    largest_difference: float = Field(description="The largest of them.")
    perplexity_a: float | None = Field(description="On the text; null where A does not say it.")
    perplexity_b: float | None = Field(description="The same for B.")
    mass_a: float = Field(description="Mean of the probability that the KL compares token by token")
    mass_b: float = Field(description="The same for B.")

    @property
    def agreement(self) -> float:
        """The share of positions with the same most probable token."""
        return self.agree / self.positions


class Candidate(_Model):
    """A token and what the two sides think of it; null where one does not say."""

    token_id: int
    text: str
    probability_a: float | None
    probability_b: float | None


class Place(_Model):
    """A place in a passage, with what both sides expected there."""

    passage: str
    position: int = Field(description="Index of the token that follows.")
    step: int = Field(description="The same, counted from the first position that is compared.")
    kl: float
    before: str = Field(description="The text before.")
    token: str = Field(description="The token that follows.")
    after: str = Field(description="The text behind it.")
    candidates: list[Candidate] = Field(description="A's best five and B's, A's first.")


class PassageReport(_Model):
    """One passage. The lists have one entry for each position, from `start` on."""

    name: str
    kind: Literal["text", "answer"]
    tokens: int
    start: int
    summary: Summary
    first_difference: Place | None = Field(description="Where the most probable token differs.")
    kl: list[float]
    agree: list[bool]

    @property
    def same_steps(self) -> int:
        """For how many positions from the first on the most probable tokens are the same."""
        return len(self.kl) if self.first_difference is None else self.first_difference.step


class Report(_Model):
    """A comparison of B with A."""

    format: Literal[1] = 1
    made: str = Field(description="When, as ISO 8601.")
    hearth: str = Field(description="The version of Hearth.")
    a: SideInfo
    b: SideInfo
    exact: bool = Field(description="KL is computed over the whole vocabulary.")
    computed: str = Field(description="What the KL divergence is here, in words.")
    texts: Summary | None = Field(description="Of all texts.")
    answers: Summary | None = Field(description="Of all answers.")
    passages: list[PassageReport]
    worst: list[Place] = Field(description="The positions with the largest KL.")
    notes: list[str] = Field(description="What else a reader should know.")
    failures: list[str] = Field(description="Each limit that was set and is not met.")


def build_report(
    a: Side,
    b: Side,
    trial: Trial,
    vocabulary: Vocabulary | None,
    notes: Sequence[str],
    *,
    made: str,
    hearth: str,
) -> Report:
    """Sum a trial up; `made` is a time as ISO 8601. The limits are judged later."""
    every = [found for reading in trial.readings for found in reading.measured]
    return Report(
        made=made,
        hearth=hearth,
        a=_info(a.about),
        b=_info(b.about),
        exact=all(found.exact for found in every),
        computed=_computed(every),
        texts=_summary_of(trial, "text"),
        answers=_summary_of(trial, "answer"),
        passages=[_passage(reading, vocabulary) for reading in trial.readings],
        worst=[_place(candidates, vocabulary) for candidates in trial.worst],
        notes=list(notes),
        failures=[],
    )


def summarize(measured: Sequence[Measured]) -> Summary:
    """Sum positions up; there is at least one."""
    kl = np.array([found.kl for found in measured])
    differences = [value for found in measured for value in found.differences]
    error = float(kl.std(ddof=1)) / math.sqrt(len(kl)) if len(kl) > 1 else 0.0
    median, p90, p99 = (float(value) for value in np.quantile(kl, (0.5, 0.9, 0.99)))
    return Summary(
        positions=len(measured),
        kl_mean=_rounded(float(kl.mean())),
        kl_error=_rounded(error),
        kl_median=_rounded(median),
        kl_p90=_rounded(p90),
        kl_p99=_rounded(p99),
        kl_max=_rounded(float(kl.max())),
        agree=sum(found.agree for found in measured),
        mean_difference=_rounded(float(np.mean(differences)) if differences else 0.0),
        largest_difference=_rounded(max(differences, default=0.0)),
        perplexity_a=_perplexity([found.logprob_a for found in measured]),
        perplexity_b=_perplexity([found.logprob_b for found in measured]),
        mass_a=_rounded(float(np.mean([found.mass_a for found in measured]))),
        mass_b=_rounded(float(np.mean([found.mass_b for found in measured]))),
    )


def _perplexity(logprobs: Sequence[float | None]) -> float | None:
    """exp of the mean of -log p; None if one is not known."""
    known = [value for value in logprobs if value is not None]
    return None if len(known) < len(logprobs) else _rounded(math.exp(-float(np.mean(known))))


def _computed(measured: Sequence[Measured]) -> str:
    if all(found.exact for found in measured):
        return "KL(A || B) over the whole vocabulary, exact."
    mass_a = float(np.mean([found.mass_a for found in measured]))
    mass_b = float(np.mean([found.mass_b for found in measured]))
    return (
        "A lower bound of KL(A || B), top-N truncated: only tokens whose probability both sides "
        "tell are compared one by one, all others count as one token. What is lumped together has "
        f"{1 - mass_a:.2%} of A's probability in the mean and {1 - mass_b:.2%} of B's."
    )


def _summary_of(trial: Trial, kind: str) -> Summary | None:
    measured = [
        found
        for reading in trial.readings
        if reading.passage.kind == kind
        for found in reading.measured
    ]
    return summarize(measured) if measured else None


def _passage(reading: Reading, vocabulary: Vocabulary | None) -> PassageReport:
    passage, first = reading.passage, reading.first_difference
    return PassageReport(
        name=passage.name,
        kind=passage.kind,
        tokens=len(passage.token_ids),
        start=passage.start,
        summary=summarize(reading.measured),
        first_difference=None if first is None else _place(first, vocabulary),
        kl=[_rounded(found.kl) for found in reading.measured],
        agree=[found.agree for found in reading.measured],
    )


def _place(candidates: Candidates, vocabulary: Vocabulary | None) -> Place:
    ids, place = candidates.passage.token_ids, candidates.place
    return Place(
        passage=candidates.passage.name,
        position=place,
        step=place - candidates.passage.start,
        kl=_rounded(candidates.kl),
        before=spelled(vocabulary, ids[max(place - _BEFORE, 0) : place]),
        token=spelled(vocabulary, ids[place : place + 1]),
        after=spelled(vocabulary, ids[place + 1 : place + 1 + _AFTER]),
        candidates=[
            Candidate(
                token_id=token,
                text=spelled(vocabulary, [token]),
                probability_a=_probability(a),
                probability_b=_probability(b),
            )
            for token, a, b in candidates.rows
        ],
    )


def _probability(logprob: float | None) -> float | None:
    return None if logprob is None else _rounded(math.exp(logprob))


def _info(about: About) -> SideInfo:
    return SideInfo(
        kind=about.kind, name=about.name, gives=about.gives, details=dict(about.details)
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
