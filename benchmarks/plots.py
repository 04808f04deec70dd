"""The plots of the benchmarks, as SVG: numbers and names in, a file out.

They have no background, and grey text that can be read on light and on dark.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

_GREY = "#808080"
_OURS, _THEIRS = "#2a9d8f", "#e07a3f"
_LEAST_KL = 1e-6  # what is smaller, as 0, is drawn here
_MARKS = "os^Dvp"
_STYLE: dict[Any, Any] = {
    "text.color": _GREY,
    "axes.labelcolor": _GREY,
    "axes.edgecolor": _GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _GREY,
    "grid.alpha": 0.25,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "legend.frameon": False,
    "font.size": 10,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "hearth",  # the same figures give the same file
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """A model in the plot of speed against quality; KL in nats, speed in tokens/s."""

    name: str
    ours: bool
    kl: float
    speed: float


@dataclass(frozen=True, kw_only=True)
class Line:
    """Speed in tokens/s by what it depends on."""

    name: str
    ours: bool
    speeds: Mapping[int, float]


def speed_against_kl(path: Path, points: Sequence[Point]) -> None:
    """Up and left is better."""
    with _axes(path, "mean KL divergence from the reference, nats", "decode, tokens/s") as axes:
        axes.set_xscale("log")
        axes.set_ylim(top=1.15 * max(point.speed for point in points))
        axes.margins(x=0.2)
        for ours, colour, mark in ((True, _OURS, "o"), (False, _THEIRS, "s")):
            side = [point for point in points if point.ours == ours]
            x = [max(point.kl, _LEAST_KL) for point in side]
            name = "Hearth" if ours else "llama.cpp"
            axes.scatter(x, [point.speed for point in side], color=colour, marker=mark, label=name)
            for at, point in zip(x, side, strict=True):
                axes.annotate(
                    point.name,
                    (at, point.speed),
                    xytext=(0, 7 if ours else -7),  # neighbours are often one of each
                    textcoords="offset points",
                    ha="center",
                    va="bottom" if ours else "top",
                )
        _legend(axes)


def speed_by(path: Path, lines: Sequence[Line], *, by: str, what: str) -> None:
    """A line for each model: `what`, in tokens/s, by `by`."""
    numbers = {True: 0, False: 0}
    with _axes(path, by, f"{what}, tokens/s") as axes:
        for line in lines:
            mark = _MARKS[numbers[line.ours] % len(_MARKS)]
            numbers[line.ours] += 1
            axes.plot(
                list(line.speeds),
                list(line.speeds.values()),
                color=_OURS if line.ours else _THEIRS,
                linestyle="-" if line.ours else "--",
                marker=mark,
                label=line.name,
            )
        axes.set_xticks(sorted({at for line in lines for at in line.speeds}))
        _legend(axes)


def _legend(axes: Axes) -> None:
    axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))


@contextmanager
def _axes(path: Path, x: str, y: str) -> Iterator[Axes]:
    """An empty plot, written to `path` with the block; speeds begin at 0."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5.6, 3.4), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        yield axes
        axes.set_ylim(bottom=0)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
