"""The plots of a comparison: KL divergence and agreement by position, and their distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.presentation.svg_plot import (
    Axis,
    Plot,
    decade_axis,
    linear_axis,
    picture,
    rectangle,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from xml.etree import ElementTree as ET

    from hearthd.baker.compare.report.summary import PassageReport

_BINS = 24
_MIN_KL = 1e-9  # smaller values, such as 0, are drawn here
_ROW, _BAR_LEFT, _BAR_RIGHT = 22, 146, 312  # of the bar chart
_MAX_NAME = 18  # characters beside a bar


@dataclass(frozen=True, kw_only=True)
class Series:
    """Values by position: `kl` f64 (N,) in nats, `agree` bool (N,), at `positions` i64 (N,)."""

    name: str
    positions: np.ndarray
    kl: np.ndarray
    agree: np.ndarray


def series_by_passage(passages: Sequence[PassageReport]) -> list[Series]:
    """One series for each passage."""
    return [merged_series(passage.name, [passage]) for passage in passages]


def merged_series(name: str, passages: Sequence[PassageReport]) -> Series:
    """One series of all passages; positions count from the first compared one of each passage."""
    return Series(
        name=name,
        positions=np.concatenate([np.arange(1, len(passage.kl) + 1) for passage in passages]),
        kl=np.concatenate([passage.kl for passage in passages]),
        agree=np.concatenate([passage.agree for passage in passages]),
    )


def kl_by_position(series: Sequence[Series], title: str, x_label: str) -> ET.Element:
    """A dot for each position, and a line through the means of neighbouring positions."""
    y = decade_axis(np.concatenate([one.kl for one in series]), smallest=_MIN_KL)
    plot = _plot_by_position(series, title, x_label, y)
    for number, one in enumerate(series):
        plot.dots(number, zip(one.positions, one.kl, strict=True))
    for number, one in enumerate(series):
        plot.line(number, _binned_means(one.positions, one.kl))
    return plot.svg


def agreement_by_position(series: Sequence[Series], title: str, x_label: str) -> ET.Element:
    """The fraction of neighbouring positions where the top token is the same."""
    lines = [_binned_means(one.positions, one.agree.astype(float)) for one in series]
    worst = min(fraction for line in lines for _, fraction in line)
    low = max(math.floor(worst * 10 - 1e-9) / 10, 0.0) if worst < 1 else 0.9
    ticks = tuple((at, f"{at:.0%}") for at in (low, (low + 1) / 2, 1))
    plot = _plot_by_position(series, title, x_label, Axis(low=low, high=1, ticks=ticks))
    for number, line in enumerate(lines):
        plot.line(number, line)
    return plot.svg


def kl_distribution(kl: Sequence[float], title: str, x_label: str) -> ET.Element:
    """The number of positions by KL divergence, in bins of a quarter of a decade."""
    x = decade_axis(kl, smallest=_MIN_KL)
    count = round(4 * math.log10(x.high / x.low))
    edges = np.geomspace(x.low, x.high, count + 1)
    counts, _ = np.histogram(np.clip(kl, x.low, x.high), edges)
    plot = Plot(title, x, linear_axis(int(counts.max())), x_label=x_label)
    plot.bars(0, zip(edges[:-1], edges[1:], map(float, counts), strict=True))
    return plot.svg


def tokens_until_difference(passages: Sequence[PassageReport], title: str) -> ET.Element:
    """A bar for each passage: the number of tokens before the top tokens first differ."""
    svg = picture(title, _ROW * len(passages) + 12)
    for row, passage in enumerate(passages):
        top, steps = 6 + row * _ROW, len(passage.kl)
        same = passage.same_steps
        end = _BAR_LEFT + (_BAR_RIGHT - _BAR_LEFT) * same / steps
        rectangle(svg, "track", (_BAR_LEFT, top, _BAR_RIGHT, top + _ROW - 7))
        rectangle(svg, "bar s0", (_BAR_LEFT, top, end, top + _ROW - 7))
        write(svg, _BAR_LEFT - 6, top + 13, passage.name[:_MAX_NAME], "end")
        text = "all" if same == steps else f"{same} of {steps}"
        write(svg, _BAR_RIGHT + 6, top + 13, text, "start")
    return svg


def _plot_by_position(series: Sequence[Series], title: str, x_label: str, y: Axis) -> Plot:
    x = linear_axis(max(int(one.positions.max()) for one in series))
    return Plot(title, x, y, x_label=x_label, names=[one.name for one in series])


def _binned_means(positions: np.ndarray, values: np.ndarray) -> list[tuple[float, float]]:
    """(position, mean value) of each of at most _BINS bins, at the mean position of the bin."""
    width = max(math.ceil(int(positions.max()) / _BINS), 1)
    bins = (positions - 1) // width
    means = []
    for number in np.unique(bins):
        inside = bins == number
        means.append((float(positions[inside].mean()), float(values[inside].mean())))
    return means
