"""Plots as SVG pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hearthd.baker.compare import cli
from hearthd.baker.compare.report.html_page import page
from hearthd.baker.presentation import plots
from hearthd.baker.presentation.plots import svg
from hearthd.baker.tuning.checkpoint import History
from hearthd.baker.tuning.tuning_report import LOSS_PLOT, TuningReport
from tests.baker.compare.test_compare_report import report

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "{http://www.w3.org/2000/svg}text"


def test_a_plot_has_a_title_for_screen_readers_and_text_that_can_be_read() -> None:
    made = svg('"KL" < 1', lambda axes: axes.set(xlabel="tokens & steps"))
    element = ET.fromstring(made)
    assert (element.get("role"), element.get("aria-label")) == ("img", '"KL" < 1')
    assert "tokens & steps" in {text.text for text in element.iter(TEXT)}
    assert made == svg('"KL" < 1', lambda axes: axes.set(xlabel="tokens & steps"))


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_legend_names_two_lines_or_more(count: int) -> None:
    names = {f"line <{number}>" for number in range(count)}
    made = svg("title", lambda axes: [axes.plot([1, 2], label=name) for name in names])
    shown = {text.text for text in ET.fromstring(made).iter(TEXT)}
    assert names & shown == (names if count > 1 else set())


def test_reports_have_no_plots_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda _: None)
    compared = report()
    text = page(compared)
    assert "Largest differences" in text
    assert "<svg" not in text
    assert "Plots" not in text
    monkeypatch.setattr(cli, "compare_sides", lambda *_: compared)
    result = CliRunner().invoke(cli.app, ["a", "b", "--out", str(tmp_path)])
    assert "without plots, which need matplotlib: pip install 'hearthd[plots]'" in result.output
    TuningReport(Console(quiet=True), tmp_path).draw(History(losses=[2.0, 1.0]))
    assert not (tmp_path / LOSS_PLOT).exists()
