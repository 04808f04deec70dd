"""A report as one HTML page that needs nothing else: no script, no network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import jinja2
from markupsafe import Markup

from baker.compare.report import svg_plots as plots
from baker.compare.report.summary_tables import (
    candidates_table,
    passages_table,
    summary_table,
    verdict,
    visible,
)

if TYPE_CHECKING:
    from baker.compare.report.summary import Report

_TEMPLATE = Path(__file__).with_name("page.html")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plot and what it shows."""

    caption: str
    svg: Markup


def page(report: Report) -> str:
    """The page; texts of strangers are escaped by Jinja."""
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
        worst=[(place, candidates_table(place)) for place in report.worst],
        visible=visible,
    )


def _figures(report: Report) -> list[Figure]:
    kl = "KL" if report.exact else "KL (lower bound)"
    texts = [passage for passage in report.passages if passage.kind == "text"]
    answers = [passage for passage in report.passages if passage.kind == "answer"]
    groups = []
    if texts:
        groups.append(("texts", "position in the text, in tokens", plots.by_text(texts)))
    if answers:
        groups.append(
            ("answers", "step of the answer, in tokens", plots.of_all("answers", answers))
        )
    figures = []
    for name, x_name, series in groups:
        by_position = f"{kl} by position, {name}: each, and the mean of neighbours"
        agreement = f"Same best token by position, {name}"
        figures += [
            _figure(by_position, plots.kl_by_position(series, by_position, x_name)),
            _figure(agreement, plots.agreement_by_position(series, agreement, x_name)),
        ]
    every = [value for passage in report.passages for value in passage.kl]
    spread = f"Distribution of {kl}, all positions"
    until = "Where the best token first differs"
    figures.append(_figure(spread, plots.distribution(every, spread, f"{kl}, nats")))
    figures.append(_figure(until, plots.same_until(report.passages, until)))
    return figures


def _figure(caption: str, svg: ET.Element) -> Figure:
    return Figure(caption=caption, svg=Markup(ET.tostring(svg, encoding="unicode")))
