"""A report as one HTML page with everything in it: no scripts, no network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from hearthd.baker.compare.report import comparison_plots as plots
from hearthd.baker.compare.report.summary_tables import (
    candidates_table,
    passages_table,
    summary_table,
    verdict,
    visible,
)
from hearthd.baker.presentation.plots import can_draw

if TYPE_CHECKING:
    from hearthd.baker.compare.report.summary import Report

_TEMPLATE = Path(__file__).with_name("page.html")


@dataclass(frozen=True, kw_only=True)
class ReportFigure:
    """A plot and its caption."""

    caption: str
    svg: Markup


def page(report: Report) -> str:
    """The text of report.html. Jinja escapes everything that comes from models and files."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        report=report,
        verdict=verdict(report),
        summary=summary_table(report),
        passages=passages_table(report),
        figures=_figures(report),
        worst=[(position, candidates_table(position)) for position in report.worst],
        visible=visible,
    )


def _figures(report: Report) -> list[ReportFigure]:
    if not can_draw():
        return []
    kl = "KL divergence" if report.exact else "KL divergence (lower bound)"
    texts = [passage for passage in report.passages if passage.kind == "text"]
    answers = [passage for passage in report.passages if passage.kind == "answer"]
    figures = []
    if texts:
        series = plots.series_by_passage(texts)
        figures += _by_position("texts", kl, series, "position in the text, in tokens")
    if answers:
        series = [plots.merged_series("answers", answers)]
        figures += _by_position("answers", kl, series, "position in the answer, in tokens")
    every = [value for passage in report.passages for value in passage.kl]
    spread = f"Distribution of {kl}, all positions"
    until = "Tokens until the top token first differs"
    return [
        *figures,
        _figure(spread, plots.kl_distribution(every, spread, f"{kl}, nats")),
        _figure(until, plots.tokens_until_difference(report.passages, until)),
    ]


def _by_position(
    group: str, kl: str, series: list[plots.Series], x_label: str
) -> list[ReportFigure]:
    divergence = f"{kl} in nats by position, {group}: every position, and means of neighbors"
    agreement = f"Positions with the same top token, {group}"
    return [
        _figure(divergence, plots.kl_by_position(series, divergence, x_label)),
        _figure(agreement, plots.agreement_by_position(series, agreement, x_label)),
    ]


def _figure(caption: str, svg: str) -> ReportFigure:
    return ReportFigure(caption=caption, svg=Markup(svg))
