"""The tables and plots of the benchmarks: medians, ranges, ratios and goals."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.report.figures import (
    Figure,
    figures_table,
    medians,
    print_figures,
    rows,
)
from benchmarks.report.speed_plots import (
    ModelPoint,
    SpeedLine,
    speed_by,
    speed_by_kl,
)
from hearthd.baker.presentation.table import markdown_table

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"
SPEED = Figure("speed", "speed, tokens/s", higher_is_better=True)
TIME = Figure("time", "  time, s")
MEASURED = {
    "ours": [{"speed": 90.0, "time": 3.0}, {"speed": 30.0, "time": 1.0}, {"speed": 60.0}],
    "theirs": [{"speed": 40.0}, {"speed": 41.0}, {"speed": 10.0}],
}
MARKDOWN = """\
the title:

|  | ours | theirs | ratio | goal |
|---|---:|---:|---:|---:|
| speed, tokens/s | 60 (30 to 90) | 40 (10 to 41) | 1.50 | at least 1.6 |
| &emsp;time, s | 2 (1 to 3) |  |  | at most 0.5 |
"""


def test_a_table_has_medians_ranges_ratios_and_goals(capsys: pytest.CaptureFixture[str]) -> None:
    figures = (SPEED, TIME, Figure("absent", "no contender has it"))
    table = figures_table("the title", figures, MEASURED, {"speed": 1.6, "time": 0.5})
    assert f"{table.title}:\n\n{markdown_table(table)}\n" == MARKDOWN
    assert table.failed_rows == {0}
    print_figures(table)
    printed = capsys.readouterr().out
    for text in ("the title", "60 (30 to 90)", "1.50", "at least 1.6", "ratio: ours / theirs"):
        assert text in printed
    assert "no contender has it" not in printed


def test_a_table_without_goals_or_a_second_contender_lacks_those_columns() -> None:
    assert figures_table("", [SPEED], MEASURED).headings == ("", "ours", "theirs", "ratio")
    alone = figures_table("", [SPEED], {"ours": MEASURED["ours"]}, {"speed": 2})
    assert alone.headings == ("", "ours")
    assert alone.rows == (("speed, tokens/s", "60 (30 to 90)"),)


@pytest.mark.parametrize(
    ("figure", "value", "goal", "met"),
    [
        (SPEED, 15, 1.5, True),
        (SPEED, 14.9, 1.5, False),
        (TIME, 7, 0.7, True),
        (TIME, 7.1, 0.7, False),
        (TIME, 7, None, None),
    ],
)
def test_a_goal_is_the_lowest_ratio_or_the_highest_where_lower_is_better(
    figure: Figure, value: float, goal: float | None, met: bool | None
) -> None:
    measured = {"ours": [{figure.name: value}], "theirs": [{figure.name: 10.0}]}
    (row,) = rows([figure], measured, {} if goal is None else {figure.name: goal})
    assert row.met is met


@given(st.lists(st.floats(0.1, 1e6), min_size=1), st.lists(st.floats(0.1, 1e6), min_size=1))
def test_a_ratio_is_that_of_the_medians(ours: list[float], theirs: list[float]) -> None:
    measured = {"a": [{"speed": x} for x in ours], "b": [{"speed": x} for x in theirs]}
    (row,) = rows([SPEED], measured)
    assert row.ratio == statistics.median(ours) / statistics.median(theirs)
    assert row.spreads[0] is not None
    assert (row.spreads[0].low, row.spreads[0].high) == (min(ours), max(ours))
    assert medians(measured["b"]) == {"speed": statistics.median(theirs)}


def texts(path: Path) -> set[str]:
    return {element.text or "" for element in ET.parse(path).iter(f"{SVG}text")}


@pytest.mark.nightly
def test_plots_name_their_models_and_axes_and_are_reproducible(tmp_path: Path) -> None:
    points = [
        ModelPoint(name="f32", is_hearth=True, kl=0.1, speed=90),
        ModelPoint(name="Q8_0", is_hearth=False, kl=0, speed=60),
    ]
    lines = [
        SpeedLine(name="Hearth int8-g32", is_hearth=True, speeds={1: 66, 8: 175}),
        SpeedLine(name="llama.cpp Q8_0", is_hearth=False, speeds={1: 59, 16: 108}),
    ]
    for folder in (tmp_path / "a", tmp_path / "b"):
        speed_by_kl(folder / "kl.svg", points)
        speed_by(folder / "by.svg", lines, x_label="clients", what="all together")
    assert {"f32", "Q8_0", "Hearth", "llama.cpp", "decode, tokens/s"} <= texts(folder / "kl.svg")
    shown = texts(folder / "by.svg")
    assert {"Hearth int8-g32", "llama.cpp Q8_0", "all together, tokens/s", "1", "8", "16"} <= shown
    for name in ("kl.svg", "by.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (folder / name).read_bytes()
