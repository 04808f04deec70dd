"""The plots of the benchmarks, as SVG files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.baker.presentation.svg_plot import Axis, Plot, decade_axis, linear_axis, standalone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MIN_KL = 1e-6  # smaller values, such as 0, are drawn here
_HEADROOM = 1.15  # space beyond the last point, for its label
_LABEL_ROOM = 1.5  # space before the first point, for its label on the left
_ROUND = (1, 1.5, 2, 3, 4, 6)
_TALL = 330  # units, for many labels
_ENGINES = ("Hearth", "llama.cpp")


@dataclass(frozen=True, kw_only=True)
class ModelPoint:
    """A model by quality and speed: KL divergence in nats, tokens/s."""

    name: str
    is_hearth: bool
    kl: float
    speed: float


@dataclass(frozen=True, kw_only=True)
class SizePoint:
    """A model by quality and size: KL divergence in nats, MB of weights read per token."""

    name: str
    is_hearth: bool
    kl: float
    megabytes: float


@dataclass(frozen=True, kw_only=True)
class SpeedLine:
    """Speeds in tokens/s by the quantity that they depend on."""

    name: str
    is_hearth: bool
    speeds: Mapping[int, float]


def speed_by_kl(path: Path, points: Sequence[ModelPoint]) -> None:
    """Draw decode speed against KL divergence; better models are further up and left."""
    kl = [max(point.kl, _MIN_KL) for point in points]
    plot = Plot(
        "Decode speed by KL divergence",
        _with_margin(decade_axis(kl, smallest=_MIN_KL)),
        linear_axis(_HEADROOM * max(point.speed for point in points)),
        x_label="mean KL divergence from the reference, nats",
        y_label="decode, tokens/s",
        names=_ENGINES,
    )
    for at, point in zip(kl, points, strict=True):
        place = (at, point.speed)
        plot.dots(0 if point.is_hearth else 1, [place])
        # A Hearth model and the llama.cpp model beside it often have almost the same position.
        plot.label(place, point.name, below=not point.is_hearth)
    _save(plot, path)


def kl_by_bytes(path: Path, points: Sequence[SizePoint]) -> None:
    """Draw KL divergence against bytes per token; better models are further down and left.

    A line joins the points of Hearth.
    """
    ordered = sorted(points, key=lambda point: (not point.is_hearth, point.megabytes))
    plot = Plot(
        "KL divergence by bytes per token",
        _round_axis([point.megabytes for point in points]),
        _with_margin(decade_axis([point.kl for point in points], smallest=_MIN_KL)),
        x_label="weights read per token, MB",
        y_label="mean KL divergence from the reference, nats",
        names=_ENGINES,
        inner_height=_TALL,
    )
    places = [(point.megabytes, max(point.kl, _MIN_KL)) for point in ordered]
    count = sum(point.is_hearth for point in ordered)
    for series, ends in enumerate((places[:count], places[count:])):
        if ends:
            plot.dots(series, ends)
    if count > 1:
        plot.line(0, places[:count])
    names = (point.name for point in ordered)
    plot.labels(list(zip(places, names, strict=True)))
    _save(plot, path)


def speed_by(path: Path, lines: Sequence[SpeedLine], *, x_label: str, what: str) -> None:
    """Draw a line for each model, those of llama.cpp dashed: `what` in tokens/s by `x_label`."""
    measured = sorted({at for line in lines for at in line.speeds})
    plot = Plot(
        f"{what} speed by {x_label}",
        Axis(low=0, high=measured[-1], ticks=tuple((at, f"{at}") for at in measured)),
        linear_axis(max(speed for line in lines for speed in line.speeds.values())),
        x_label=x_label,
        y_label=f"{what}, tokens/s",
        names=[line.name for line in lines],
    )
    for series, line in enumerate(lines):
        plot.line(series, line.speeds.items(), dashed=not line.is_hearth)
        plot.dots(series, line.speeds.items())
    _save(plot, path)


def _round_axis(values: Sequence[float]) -> Axis:
    """A logarithmic axis around positive values, with round numbers as ticks."""
    low, high = min(values) / _LABEL_ROOM, max(values) * _HEADROOM
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    round_numbers = (step * 10.0**power for power in powers for step in _ROUND)
    ticks = tuple((at, f"{at:g}") for at in round_numbers if low <= at <= high)
    return Axis(low=low, high=high, ticks=ticks, logarithmic=True)


def _with_margin(axis: Axis) -> Axis:
    """The axis, half a decade longer at both ends, so that labels at its ends stay inside."""
    half = 10**0.5
    return Axis(low=axis.low / half, high=axis.high * half, ticks=axis.ticks, logarithmic=True)


def _save(plot: Plot, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(standalone(plot.svg), encoding="utf-8")
