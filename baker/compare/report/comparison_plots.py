"""The plots of a comparison: KL divergence and agreement by position, and their distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.presentation.plots import svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from hearthd.baker.compare.report.summary import PassageReport

_BINS = 24
_MIN_KL = 1e-9  # smaller values, such as 0, are drawn here
_DECADES = 6  # of a distribution
_ROW, _MARGIN = 22, 30  # points of the bar chart
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


def kl_by_position(series: Sequence[Series], title: str, x_label: str) -> str:
    """A dot for each position, and a line through the means of neighboring positions."""

    def draw(axes: Axes) -> None:
        axes.set(xlabel=x_label, yscale="log")
        for curve in series:
            kl = np.maximum(curve.kl, _MIN_KL)
            (dots,) = axes.plot(curve.positions, kl, ".", alpha=0.4)
            axes.plot(*_binned_means(curve.positions, kl), color=dots.get_color(), label=curve.name)

    return svg(title, draw)


def agreement_by_position(series: Sequence[Series], title: str, x_label: str) -> str:
    """The fraction of neighboring positions where the top token is the same."""

    def draw(axes: Axes) -> None:
        axes.set(xlabel=x_label)
        axes.yaxis.set_major_formatter("{x:.0%}")
        for curve in series:
            axes.plot(*_binned_means(curve.positions, curve.agree.astype(float)), label=curve.name)

    return svg(title, draw)


def kl_distribution(kl: Sequence[float], title: str, x_label: str) -> str:
    """The number of positions by KL divergence, in bins of a quarter of a decade."""
    top = math.ceil(math.log10(max(*kl, 10 * _MIN_KL)))
    edges = np.logspace(top - _DECADES, top, 4 * _DECADES + 1)

    def draw(axes: Axes) -> None:
        axes.set(xlabel=x_label, xscale="log")
        axes.hist(np.clip(kl, edges[0], edges[-1]), list(edges))

    return svg(title, draw)


def tokens_until_difference(passages: Sequence[PassageReport], title: str) -> str:
    """A bar for each passage: the number of tokens before the top tokens first differ."""
    counts = [(passage.same_steps, len(passage.kl)) for passage in passages]

    def draw(axes: Axes) -> None:
        axes.set(xlim=(0, 1.25), xticks=[])
        rows = range(len(passages))
        bars = axes.barh(rows, [same / steps for same, steps in counts])
        texts = ["all" if same == steps else f"{same} of {steps}" for same, steps in counts]
        axes.bar_label(bars, texts, padding=3)
        axes.set_yticks(rows, [passage.name[:_MAX_NAME] for passage in passages])
        axes.invert_yaxis()

    return svg(title, draw, height=_ROW * len(passages) + _MARGIN)


def _binned_means(positions: np.ndarray, values: np.ndarray) -> tuple[list[float], list[float]]:
    """Positions and mean values of at most _BINS bins, each at the mean position of the bin."""
    width = max(math.ceil(int(positions.max()) / _BINS), 1)
    bins = (positions - 1) // width
    inside = [bins == number for number in np.unique(bins)]
    return [positions[bin_].mean() for bin_ in inside], [values[bin_].mean() for bin_ in inside]
