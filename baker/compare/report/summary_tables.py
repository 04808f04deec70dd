"""The figures of a report as tables, the same in the terminal, Markdown and HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.baker.presentation.table import Table

if TYPE_CHECKING:
    from hearthd.baker.compare.report.summary import (
        PassageReport,
        Report,
        ReportedPosition,
        Summary,
    )


def verdict(report: Report) -> str:
    """The result as one line."""
    parts = [_line(group, summary) for group, summary in _groups(report)]
    return "; ".join(parts) + ("" if not report.failures else "; outside the limits")


def summary_table(report: Report) -> Table:
    """A column for all texts and one for all answers."""
    groups = _groups(report)
    kl = "KL divergence" if report.exact else "KL divergence, at least:"
    names = (
        "positions", f"{kl} mean", "  ± standard error", f"{kl} median", f"{kl} 90 %",
        f"{kl} 99 %", f"{kl} largest", "same top token", "perplexity of A", "perplexity of B",
        "log p difference, mean", "log p difference, largest",
    )  # fmt: skip
    columns = [_cells(summary) for _, summary in groups]
    return Table(
        title="Summary",
        headings=("", *(group for group, _ in groups)),
        rows=tuple(zip(names, *columns, strict=True)),
    )


def passages_table(report: Report) -> Table:
    """A row for each passage."""
    kl = "KL" if report.exact else "KL at least"
    return Table(
        title="Passages",
        headings=(
            "passage", "positions", f"{kl}, mean", "largest", "same top token",
            "equal at start", "log p diff., mean", "largest",
        ),
        rows=tuple(_passage_row(passage) for passage in report.passages),
    )  # fmt: skip


def candidates_table(position: ReportedPosition) -> Table:
    """The top tokens of both sides at one position."""
    return Table(
        title=f"{position.passage}, position {position.position}: KL {number(position.kl)}",
        headings=("token", "probability of A", "probability of B"),
        rows=tuple(
            (visible(row.text), probability(row.probability_a), probability(row.probability_b))
            for row in position.candidates
        ),
    )


def number(value: float | None) -> str:
    """Three significant digits; a dash if it is unknown."""
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.3g}"


def probability(value: float | None) -> str:
    """Four digits after the point; a dash if it is unknown."""
    return "-" if value is None else f"{value:.4f}"


def one_line(text: str) -> str:
    """The text with visible line breaks and tabs."""
    return text.replace("\n", "⏎").replace("\r", "␍").replace("\t", "⇥")


def visible(text: str) -> str:
    """The text of a token with visible white space; spaces only at its ends."""
    shown = one_line(text)
    return shown if shown.strip() == shown and shown else shown.replace(" ", "␣")


def _groups(report: Report) -> list[tuple[str, Summary]]:
    groups = (("texts", report.texts), ("answers", report.answers))
    return [(group, summary) for group, summary in groups if summary is not None]


def _line(group: str, summary: Summary) -> str:
    return (
        f"{group}: mean KL divergence {number(summary.kl_mean)} nats over {summary.positions} "
        f"positions, same top token at {summary.agreement:.2%}"
    )


def _cells(summary: Summary) -> tuple[str, ...]:
    return (
        f"{summary.positions}",
        number(summary.kl_mean),
        number(summary.kl_error),
        number(summary.kl_median),
        number(summary.kl_p90),
        number(summary.kl_p99),
        number(summary.kl_max),
        f"{summary.agreement:.2%}",
        number(summary.perplexity_a),
        number(summary.perplexity_b),
        number(summary.mean_difference),
        number(summary.largest_difference),
    )


def _passage_row(passage: PassageReport) -> tuple[str, ...]:
    summary = passage.summary
    return (
        passage.name,
        f"{summary.positions}",
        number(summary.kl_mean),
        number(summary.kl_max),
        f"{summary.agree} of {summary.positions}",
        f"{passage.same_steps}",
        number(summary.mean_difference),
        number(summary.largest_difference),
    )
