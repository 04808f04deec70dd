"""The plots of a report as SVG elements: nothing but numbers, names and classes.

Colours and fonts are the page's: a series has the class `s0` to `s5`. A plot is 400 units wide, so
that its text can be read on a phone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from baker.compare.report.summary import PassageReport

_WIDTH, _HEIGHT = 400, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 378, 30, 192
_SERIES = 6
_BINS = 24
_ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_ROW, _BAR_LEFT, _BAR_RIGHT = 22, 146, 312  # of the bar chart
_LEAST_KL = 1e-9  # what is smaller, as 0, is drawn here


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A scale: the numbers at its ends, those that are written at it, and where they lie, 0 to 1.

    A logarithmic one has powers of ten.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """How far along the axis a value is."""
        low, high = (math.log(x) if self.logarithmic else x for x in (self.low, self.high))
        at = math.log(max(value, self.low)) if self.logarithmic else value
        return (at - low) / (high - low)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Values by position: `kl` f64 (N,), `agree` bool (N,), at `positions` i64 (N,)."""

    name: str
    positions: np.ndarray
    kl: np.ndarray
    agree: np.ndarray


def by_text(passages: Sequence[PassageReport]) -> list[Series]:
    """One series for each passage."""
    return [_series(passage.name, [passage]) for passage in passages]


def of_all(name: str, passages: Sequence[PassageReport]) -> list[Series]:
    """One series of all passages together, by step."""
    return [_series(name, passages)]


def kl_by_position(series: Sequence[Series], title: str, x_name: str) -> ET.Element:
    """A point for each position, and the mean of neighbours as a line."""
    x = _linear(max(int(one.positions.max()) for one in series))
    y = _decades(np.concatenate([one.kl for one in series]))
    svg = _frame(title, x, y, x_name)
    for number, one in enumerate(series):
        places = zip(one.positions, one.kl, strict=True)
        dots = "".join(f"M{_x(x, at)} {_y(y, kl)}h0" for at, kl in places)
        ET.SubElement(svg, "path", {"class": f"dots s{number % _SERIES}", "d": dots})
    for number, one in enumerate(series):
        _line(svg, number, _binned(one.positions, one.kl), x, y)
    return _legend(svg, [one.name for one in series])


def agreement_by_position(series: Sequence[Series], title: str, x_name: str) -> ET.Element:
    """The share of positions with the same most probable token, among neighbours."""
    x = _linear(max(int(one.positions.max()) for one in series))
    lines = [_binned(one.positions, one.agree.astype(float)) for one in series]
    worst = min(share for line in lines for _, share in line)
    low = max(math.floor(worst * 10 - 1e-9) / 10, 0.0) if worst < 1 else 0.9
    middle = (low + 1) / 2
    y = Axis(low=low, high=1, ticks=tuple((at, f"{at:.0%}") for at in (low, middle, 1)))
    svg = _frame(title, x, y, x_name)
    for number, line in enumerate(lines):
        _line(svg, number, line, x, y)
    return _legend(svg, [one.name for one in series])


def distribution(kl: Sequence[float], title: str, x_name: str) -> ET.Element:
    """How many positions have which divergence, in bins of a quarter of a decade."""
    x = _decades(np.array(kl))
    count = round(4 * math.log10(x.high / x.low))
    edges = np.geomspace(x.low, x.high, count + 1)
    counts, _ = np.histogram(np.clip(kl, x.low, x.high), edges)
    y = _linear(int(counts.max()))
    svg = _frame(title, x, y, x_name)
    for left, right, height in zip(edges[:-1], edges[1:], counts, strict=True):
        if height:
            top = _y(y, float(height))
            _rectangle(svg, "bar s0", (_x(x, left), top, _x(x, right), _BOTTOM))
    return svg


def same_until(passages: Sequence[PassageReport], title: str) -> ET.Element:
    """For each passage, how far the most probable tokens are the same."""
    height = _ROW * len(passages) + 12
    svg = _picture(title, height)
    for row, passage in enumerate(passages):
        top, steps = 6 + row * _ROW, len(passage.kl)
        same = passage.same_steps
        end = _BAR_LEFT + (_BAR_RIGHT - _BAR_LEFT) * same / steps
        _rectangle(svg, "track", (_BAR_LEFT, top, _BAR_RIGHT, top + _ROW - 7))
        _rectangle(svg, "bar s0", (_BAR_LEFT, top, end, top + _ROW - 7))
        _text(svg, _BAR_LEFT - 6, top + 13, passage.name[:18], "end")
        said = "all" if same == steps else f"{same} of {steps}"
        _text(svg, _BAR_RIGHT + 6, top + 13, said, "start")
    return svg


def _series(name: str, passages: Sequence[PassageReport]) -> Series:
    """Positions counted from the first of each passage that is compared."""
    return Series(
        name=name,
        positions=np.concatenate([np.arange(1, len(passage.kl) + 1) for passage in passages]),
        kl=np.concatenate([passage.kl for passage in passages]),
        agree=np.concatenate([passage.agree for passage in passages]),
    )


def _binned(positions: np.ndarray, values: np.ndarray) -> list[tuple[float, float]]:
    """The mean of the values in each of up to _BINS bins of positions, at the bin's middle."""
    last = int(positions.max())
    width = max(math.ceil(last / _BINS), 1)
    bins = (positions - 1) // width
    means = []
    for number in np.unique(bins):
        inside = bins == number
        means.append((float(positions[inside].mean()), float(values[inside].mean())))
    return means


def _linear(most: int) -> Axis:
    """From 0 to a round number that is not below `most`."""
    step = 10 ** math.floor(math.log10(max(most, 1)))
    high = next(step * factor for factor in _ROUND if step * factor >= most)
    ticks = tuple((at, f"{at:g}") for at in (0, high / 2, high))
    return Axis(low=0, high=high, ticks=ticks)


def _decades(values: np.ndarray) -> Axis:
    """From a power of ten to another; at most six decades, so that the upper ones can be seen."""
    top = math.ceil(math.log10(max(float(values.max()), _LEAST_KL * 10)))
    positive = values[values > _LEAST_KL]
    least = float(np.quantile(positive, 0.01)) if positive.size else _LEAST_KL
    bottom = max(math.floor(math.log10(least)), top - 6)
    bottom = min(bottom, top - 1)
    every = max(1, (top - bottom) // 3)
    ticks = tuple((10.0**power, f"1e{power}") for power in range(bottom, top + 1, every))
    return Axis(low=10.0**bottom, high=10.0**top, ticks=ticks, logarithmic=True)


def _picture(title: str, height: float) -> ET.Element:
    box = f"0 0 {_WIDTH} {height:g}"
    return ET.Element("svg", {"viewBox": box, "role": "img", "aria-label": title})


def _frame(title: str, x: Axis, y: Axis, x_name: str) -> ET.Element:
    """An empty plot with its axes."""
    svg = _picture(title, _HEIGHT)
    for at, label in y.ticks:
        height = _y(y, at)
        ET.SubElement(svg, "path", {"class": "grid", "d": f"M{_LEFT} {height}H{_RIGHT}"})
        _text(svg, _LEFT - 6, height + 4, label, "end")
    for at, label in x.ticks:
        _text(svg, _x(x, at), _BOTTOM + 17, label, "middle")
    _text(svg, (_LEFT + _RIGHT) / 2, _HEIGHT - 4, x_name, "middle")
    return svg


def _legend(svg: ET.Element, names: Sequence[str]) -> ET.Element:
    """The names of several series above the plot, as many as there is room for."""
    left = float(_LEFT)
    for number, name in enumerate(names if len(names) > 1 else ()):
        shown = name[:18]
        if left + 14 + 7.5 * len(shown) > _RIGHT:
            _text(svg, left, 16, "...", "start")
            break
        _rectangle(svg, f"bar s{number % _SERIES}", (left, 7, left + 10, 17))
        _text(svg, left + 14, 16, shown, "start")
        left += 28 + 7.5 * len(shown)
    return svg


def _line(
    svg: ET.Element, number: int, points: Sequence[tuple[float, float]], x: Axis, y: Axis
) -> None:
    path = "L".join(f"{_x(x, at)} {_y(y, value)}" for at, value in points)
    ET.SubElement(svg, "path", {"class": f"line s{number % _SERIES}", "d": f"M{path}"})


def _rectangle(svg: ET.Element, name: str, box: tuple[float, float, float, float]) -> None:
    left, top, right, bottom = box
    size = {"width": f"{right - left:.1f}", "height": f"{bottom - top:.1f}"}
    ET.SubElement(svg, "rect", {"class": name, "x": f"{left:.1f}", "y": f"{top:.1f}", **size})


def _text(svg: ET.Element, x: float, y: float, text: str, anchor: str) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ET.SubElement(svg, "text", place).text = text


def _x(axis: Axis, value: float) -> float:
    return round(_LEFT + (_RIGHT - _LEFT) * axis.share(value), 1)


def _y(axis: Axis, value: float) -> float:
    return round(_BOTTOM - (_BOTTOM - _TOP) * axis.share(value), 1)
