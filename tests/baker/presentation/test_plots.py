"""Plots as SVG pictures."""

from __future__ import annotations

import sys
from xml.etree import ElementTree as ET

import pytest

from hearthd import cli
from hearthd.baker.presentation import plots
from hearthd.baker.presentation.plots import svg

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


@pytest.mark.parametrize(
    "arguments", [["compare", "a", "b"], ["tune", "gemma3", "--data", "x", "--out", "y"]]
)
def test_a_report_says_what_it_needs_before_the_work(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["hearth", *arguments])
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    assert "'matplotlib' is not installed" in (error := capsys.readouterr().err)
    assert "pip install 'hearthd[bake,plots]'" in error
