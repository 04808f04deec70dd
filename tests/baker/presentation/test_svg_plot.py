"""Axes, legends and files of SVG plots."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.baker.presentation.svg_plot import (
    SERIES,
    WIDTH,
    Box,
    Plot,
    decade_axis,
    linear_axis,
    standalone,
)

SVG = "{http://www.w3.org/2000/svg}"


@given(st.floats(0, 1e9))
def test_a_linear_axis_ends_at_a_round_number_above_the_largest_value(largest: float) -> None:
    axis = linear_axis(largest)
    assert axis.low == 0
    assert axis.high >= largest
    assert axis.high <= max(2 * largest, 1)
    assert [axis.fraction(at) for at, _ in axis.ticks] == [0, 0.5, 1]


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_decade_axis_contains_the_largest_value_and_at_most_six_decades(
    values: list[float],
) -> None:
    axis = decade_axis(values, smallest=1e-9)
    assert axis.high / axis.low * 1.001 >= 10
    assert axis.high / axis.low <= 1.001e6
    assert max(values) <= axis.high * 1.001
    assert all(0 <= axis.fraction(value) <= 1.001 for value in values)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 30])
def test_a_legend_fits_the_plot_and_names_two_series_or_more(count: int) -> None:
    names = [f"a model with a long name {number}" for number in range(count)]
    plot = Plot("title", linear_axis(1), linear_axis(1), x_label="x", names=names)
    marks = list(plot.svg.iter("rect"))
    shown = {text.text for text in plot.svg.iter("text")}
    assert len(marks) == (count if count > 1 else 0)
    assert set(names) <= shown or count < 2
    grid = [path for path in plot.svg.iter("path") if path.get("class") == "grid"]
    top = min(float(path.get("d", "").split()[1].split("H")[0]) for path in grid)
    assert all(float(mark.get("y", "")) + 10 < top for mark in marks)
    assert all(float(mark.get("x", "")) < WIDTH for mark in marks)


def test_a_file_has_a_colour_for_every_series_and_the_name_of_the_plot() -> None:
    plot = Plot("the title", linear_axis(1), linear_axis(1), x_label="x")
    plot.line(SERIES + 1, [(0, 0), (1, 1)])
    svg = ET.fromstring(standalone(plot.svg))
    assert svg.get("aria-label") == "the title"
    style = svg.findtext(f"{SVG}style") or ""
    assert all(f".line.s{number}{{stroke:#" in style for number in range(SERIES))
    assert [path.get("class") for path in svg.iter(f"{SVG}path")][-1] == "line s1"


def test_labels_of_close_points_cover_neither_each_other_nor_dots() -> None:
    plot = Plot("title", linear_axis(1), linear_axis(1), x_label="x", inner_height=330)
    points = [(0.5, 0.5), (0.52, 0.5), (0.5, 0.52), (0.54, 0.5), (1.0, 1.0), (0.0, 0.0)]
    plot.labels([(point, f"label {number}") for number, point in enumerate(points)])
    boxes = [
        label_box(text) for text in plot.svg.iter("text") if (text.text or "").startswith("label ")
    ]
    assert len(boxes) == len(points)
    for number, box in enumerate(boxes):
        assert not any(box.overlap(other) for other in boxes[:number])
        assert 40 < box.left < box.right <= WIDTH
    dots = [(48 + 330 * x, 360 - 330 * y) for x, y in points]
    assert not any(box.overlap(Box(x - 3, y - 3, x + 3, y + 3)) for box in boxes for x, y in dots)


def label_box(text: ET.Element) -> Box:
    """The box of a text of 7 characters, each 7.5 units wide."""
    x, y, width = float(text.get("x", "")), float(text.get("y", "")), 7 * 7.5
    left = {"start": x, "middle": x - width / 2, "end": x - width}[text.get("text-anchor", "")]
    return Box(left, y - 11, left + width, y + 3)
