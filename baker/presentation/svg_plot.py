"""Line, point and bar plots as SVG, 400 units wide so that the text can be read on a phone.

A plot has no colours and fonts of its own: a series has the class `s0` to `s5`, and the style sheet
of the page gives it a colour. `standalone` adds a style sheet, for a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SERIES = 6  # different colours
WIDTH = 400
_LEFT, _RIGHT, _TOP = 48, 378, 30
_INNER_HEIGHT, _BELOW = 162, 38
_LEGEND_ROW = 16
_CHARACTER = 7.5  # units; wide enough for any font
_LINE, _DESCENT = 14, 3  # of a text: height, and the part below its baseline
_DOT = 4  # half the width of a dot and of the space around it
_MAX_NAME = 44  # characters in a legend
_ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_DECADES = 6
# Grey that can be read on a light and on a dark page, and colours of medium brightness.
_COLOURS = ("#2a9d8f", "#e07a3f", "#4a7fc1", "#a86bb5", "#8a9a2e", "#c2577f")
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#808080}path{fill:none}"
    ".grid{stroke:#808080;stroke-opacity:.25}"
    ".dots{stroke-width:6;stroke-linecap:round}.line{stroke-width:2.2;stroke-linejoin:round}"
    ".dashed{stroke-dasharray:6 4}"
) + "".join(
    f".bar.s{i}{{fill:{colour}}}.dots.s{i},.line.s{i}{{stroke:{colour}}}"
    for i, colour in enumerate(_COLOURS)
)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A linear or logarithmic scale from `low` to `high`; `ticks` are (value, label)."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def fraction(self, value: float) -> float:
        """The position of a value along the axis, from 0 to 1."""
        low, high = (math.log(x) if self.logarithmic else x for x in (self.low, self.high))
        position = math.log(max(value, self.low)) if self.logarithmic else value
        return (position - low) / (high - low)


def linear_axis(largest: float) -> Axis:
    """From 0 to a round number that is at least `largest`."""
    step = 10 ** math.floor(math.log10(max(largest, 1)))
    high = next(step * factor for factor in _ROUND if step * factor >= largest)
    return Axis(low=0, high=high, ticks=tuple((at, f"{at:g}") for at in (0, high / 2, high)))


def decade_axis(values: Iterable[float], *, smallest: float) -> Axis:
    """Logarithmic between powers of ten, at most six decades: values below are drawn at its end.

    Values below `smallest`, such as 0, do not count.
    """
    array = np.fromiter(values, np.float64)
    top = math.ceil(math.log10(max(float(array.max()), smallest * 10)))
    positive = array[array > smallest]
    low = float(np.quantile(positive, 0.01)) if positive.size else smallest
    bottom = min(max(math.floor(math.log10(low)), top - _DECADES), top - 1)
    every = max(1, (top - bottom) // 3)
    ticks = tuple((10.0**power, f"1e{power}") for power in range(bottom, top + 1, every))
    return Axis(low=10.0**bottom, high=10.0**top, ticks=ticks, logarithmic=True)


class Plot:
    """A plot with two axes; `names` of two series or more become a legend above it.

    `inner_height` is the distance between the ends of the vertical axis.
    """

    def __init__(
        self,
        title: str,
        x: Axis,
        y: Axis,
        *,
        x_label: str,
        y_label: str = "",
        names: Sequence[str] = (),
        inner_height: int = _INNER_HEIGHT,
    ) -> None:
        self._x, self._y = x, y
        self._inner_height = inner_height
        rows = _legend_rows(names) if len(names) > 1 else []
        self._top = _TOP + _LEGEND_ROW * max(0, len(rows) + bool(y_label) - 1)
        self._bottom = self._top + inner_height
        self.svg = picture(title, self._bottom + _BELOW)
        for row, entries in enumerate(rows):
            for left, series, name in entries:
                top = 7 + row * _LEGEND_ROW
                rectangle(self.svg, f"bar s{series % SERIES}", (left, top, left + 10, top + 10))
                write(self.svg, left + 14, top + 9, name, "start")
        if y_label:
            write(self.svg, 2, self._top - 12, y_label, "start")
        self._axes(x_label)

    def line(
        self, series: int, points: Iterable[tuple[float, float]], *, dashed: bool = False
    ) -> None:
        """Connect points, each (x, y)."""
        path = "L".join(f"{self._across(x)} {self._down(y)}" for x, y in points)
        style = " dashed" if dashed else ""
        self._path(f"line s{series % SERIES}{style}", f"M{path}")

    def dots(self, series: int, points: Iterable[tuple[float, float]]) -> None:
        """Draw a dot at each point (x, y)."""
        path = "".join(f"M{self._across(x)} {self._down(y)}h0" for x, y in points)
        self._path(f"dots s{series % SERIES}", path)

    def bars(self, series: int, bars: Iterable[tuple[float, float, float]]) -> None:
        """Draw a bar for each (left, right, height) that is not empty."""
        for left, right, height in bars:
            if height:
                box = (self._across(left), self._down(height), self._across(right), self._bottom)
                rectangle(self.svg, f"bar s{series % SERIES}", box)

    def label(self, point: tuple[float, float], text: str, *, below: bool = False) -> None:
        """Write a text above or below a point (x, y)."""
        x, y = point
        write(self.svg, self._across(x), self._down(y) + (19 if below else -9), text, "middle")

    def labels(self, labels: Sequence[tuple[tuple[float, float], str]]) -> None:
        """Write a text beside each point ((x, y), text), where it covers the fewest dots and texts.

        Points are labelled in the given order. Places farther from a point cost more.
        """
        dots = [(self._across(x), self._down(y)) for (x, y), _ in labels]
        covered = [Box(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in dots]
        inside = Box(_LEFT, self._top - _DOT, WIDTH, self._bottom)
        for dot, (_, text) in zip(dots, labels, strict=True):
            places = label_places(dot, _CHARACTER * len(text))
            costs = [
                (sum(box.overlap(other) for other in covered) + box.area - box.overlap(inside), at)
                for at, (box, _) in enumerate(places)
            ]
            box, anchor = places[min(costs)[1]]
            x = {"start": box.left, "middle": (box.left + box.right) / 2, "end": box.right}[anchor]
            write(self.svg, x, box.bottom - _DESCENT, text, anchor)
            covered.append(box)

    def _axes(self, x_label: str) -> None:
        for at, label in self._y.ticks:
            height = self._down(at)
            self._path("grid", f"M{_LEFT} {height}H{_RIGHT}")
            write(self.svg, _LEFT - 6, height + 4, label, "end")
        for at, label in self._x.ticks:
            write(self.svg, self._across(at), self._bottom + 17, label, "middle")
        write(self.svg, (_LEFT + _RIGHT) / 2, self._bottom + _BELOW - 4, x_label, "middle")

    def _path(self, style: str, path: str) -> None:
        ET.SubElement(self.svg, "path", {"class": style, "d": path})

    def _across(self, value: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * self._x.fraction(value), 1)

    def _down(self, value: float) -> float:
        return round(self._bottom - self._inner_height * self._y.fraction(value), 1)


@dataclass(frozen=True)
class Box:
    """A rectangle of a picture; `bottom` is larger than `top`."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def area(self) -> float:
        """The area."""
        return (self.right - self.left) * (self.bottom - self.top)

    def overlap(self, other: Box) -> float:
        """The area that both boxes cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(width, 0) * max(height, 0)


def label_places(dot: tuple[float, float], width: float) -> list[tuple[Box, str]]:
    """Boxes for a text of this width around a dot, with the text's anchor, the nearest first."""
    x, y = dot
    places = []
    for away in range(0, 3 * _LINE, _LINE // 2):
        for middle in (y - away, y + away):
            top, bottom = middle - _LINE / 2, middle + _LINE / 2
            places.append((Box(x - 2 * _DOT - width, top, x - 2 * _DOT, bottom), "end"))
            places.append((Box(x + 2 * _DOT, top, x + 2 * _DOT + width, bottom), "start"))
            if away >= _LINE:
                places.append((Box(x - width / 2, top, x + width / 2, bottom), "middle"))
    return places


def picture(title: str, height: float) -> ET.Element:
    """An empty picture with a name for screen readers."""
    box = f"0 0 {WIDTH} {height:g}"
    return ET.Element("svg", {"viewBox": box, "role": "img", "aria-label": title})


def rectangle(svg: ET.Element, style: str, box: tuple[float, float, float, float]) -> None:
    """Draw a rectangle: left, top, right, bottom."""
    left, top, right, bottom = box
    size = {"width": f"{right - left:.1f}", "height": f"{bottom - top:.1f}"}
    ET.SubElement(svg, "rect", {"class": style, "x": f"{left:.1f}", "y": f"{top:.1f}", **size})


def write(svg: ET.Element, x: float, y: float, text: str, anchor: str) -> None:
    """Write a text whose `anchor` (start, middle or end) is at (x, y)."""
    position = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ET.SubElement(svg, "text", position).text = text


def standalone(svg: ET.Element) -> str:
    """The text of an SVG file: the picture with colours and fonts, and no background."""
    whole = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **svg.attrib})
    ET.SubElement(whole, "style").text = _STYLE
    whole.extend(svg)
    return ET.tostring(whole, encoding="unicode") + "\n"


def _legend_rows(names: Sequence[str]) -> list[list[tuple[float, int, str]]]:
    """Names in rows that fit the width, each as (left, series, name); long names are cut."""
    rows: list[list[tuple[float, int, str]]] = [[]]
    left = float(_LEFT)
    for series, name in enumerate(names):
        shown = name[:_MAX_NAME]
        width = 14 + _CHARACTER * len(shown)
        if rows[-1] and left + width > WIDTH:
            rows.append([])
            left = float(_LEFT)
        rows[-1].append((left, series, shown))
        left += width + 14
    return rows
