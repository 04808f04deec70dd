"""The benchmarks' tables and plots: medians, ratios, goals, and where the numbers are shown."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.plots import Line, Point, speed_against_kl, speed_by
from benchmarks.table import Figure, markdown, medians, print_table, rows

if TYPE_CHECKING:
    from pathlib import Path

SPEED = Figure("speed", "speed, tokens/s", more_is_better=True)
TIME = Figure("time", "time, s")
SIDES = {
    "ours": [{"speed": 90.0, "time": 3.0}, {"speed": 30.0, "time": 1.0}, {"speed": 60.0}],
    "theirs": [{"speed": 40.0}, {"speed": 41.0}, {"speed": 10.0}],
}
TEXT = """\
|  | ours | theirs | ratio | goal |
| --- | --- | --- | --- | --- |
| speed, tokens/s | 60 (30 to 90) | 40 (10 to 41) | 1.50 | at least 1.6 |
| time, s | 2 (1 to 3) |  |  | at most 0.5 |
"""


def test_a_table_has_medians_spreads_ratios_and_goals(capsys: pytest.CaptureFixture[str]) -> None:
    goals = {"speed": 1.6, "time": 0.5}
    figures = (SPEED, TIME, Figure("nobody", "has this"))
    assert markdown(figures, SIDES, goals) == TEXT
    print_table("the title", figures, SIDES, goals)
    printed = capsys.readouterr().out
    for said in ("the title", "30 to 90", "10 to 41", "1.50", "at least 1.6", "ours / theirs"):
        assert said in printed
    assert "has this" not in printed


def test_without_goals_or_a_second_side_there_are_no_such_columns() -> None:
    assert markdown([SPEED], SIDES).splitlines()[2].endswith("| 1.50 |")
    alone = markdown([SPEED], {"ours": SIDES["ours"]}, {"speed": 2})
    assert alone.splitlines()[2] == "| speed, tokens/s | 60 (30 to 90) |"


@pytest.mark.parametrize(
    ("figure", "ours", "goal", "met"),
    [
        (SPEED, 15, 1.5, True),
        (SPEED, 14.9, 1.5, False),
        (TIME, 7, 0.7, True),
        (TIME, 7.1, 0.7, False),
        (TIME, 7, None, None),
    ],
)
def test_a_goal_is_a_least_ratio_or_where_less_is_better_a_greatest(
    figure: Figure, ours: float, goal: float | None, met: bool | None
) -> None:
    measured = {"ours": [{figure.name: ours}], "theirs": [{figure.name: 10.0}]}
    (row,) = rows([figure], measured, {} if goal is None else {figure.name: goal})
    assert row.met is met


@given(st.lists(st.floats(0.1, 1e6), min_size=1), st.lists(st.floats(0.1, 1e6), min_size=1))
def test_a_ratio_is_that_of_the_medians(ours: list[float], theirs: list[float]) -> None:
    measured = {"a": [{"speed": x} for x in ours], "b": [{"speed": x} for x in theirs]}
    (row,) = rows([SPEED], measured)
    assert row.ratio == statistics.median(ours) / statistics.median(theirs)
    assert row.sides[0] is not None
    assert (row.sides[0].low, row.sides[0].high) == (min(ours), max(ours))
    assert medians(measured["b"]) == {"speed": statistics.median(theirs)}


def texts(path: Path) -> set[str]:
    """All that is written in a plot."""
    return {element.text or "" for element in ET.parse(path).iter() if element.tag.endswith("text")}


def test_plots_name_what_they_show_and_are_the_same_every_time(tmp_path: Path) -> None:
    points = [
        Point(name="f32", ours=True, kl=0.1, speed=90),
        Point(name="Q8_0", ours=False, kl=0, speed=60),
    ]
    lines = [
        Line(name="Hearth int8-g32", ours=True, speeds={1: 66, 8: 175}),
        Line(name="llama.cpp Q8_0", ours=False, speeds={1: 59, 16: 108}),
    ]
    for folder in (tmp_path / "a", tmp_path / "b"):
        speed_against_kl(folder / "kl.svg", points)
        speed_by(folder / "by.svg", lines, by="clients", what="all together")
    assert {"f32", "Q8_0", "Hearth", "llama.cpp", "decode, tokens/s"} <= texts(folder / "kl.svg")
    shown = texts(folder / "by.svg")
    assert {"Hearth int8-g32", "llama.cpp Q8_0", "all together, tokens/s", "1", "8", "16"} <= shown
    for name in ("kl.svg", "by.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (folder / name).read_bytes()
