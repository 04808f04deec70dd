"""Plots as SVG pictures."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

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
