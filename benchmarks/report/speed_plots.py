"""The plots of the benchmarks, as SVG files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.baker.presentation.svg_plot import Axis, Plot, decade_axis, linear_axis, standalone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MIN_KL = 1e-6  # smaller values, such as 0, are drawn here
_HEADROOM = 1.15  # space beyond the last point, for its label
_ENGINES = ("Hearth", "llama.cpp")


@dataclass(frozen=True, kw_only=True)
class ModelPoint:
    """A model by quality and speed: KL divergence in nats, tokens/s."""

    name: str
    is_hearth: bool
    kl: float
    speed: float


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


def _with_margin(axis: Axis) -> Axis:
    """The axis, half a decade longer at both ends, so that labels at its ends stay inside."""
    half = 10**0.5
    return Axis(low=axis.low / half, high=axis.high * half, ticks=axis.ticks, logarithmic=True)


def _save(plot: Plot, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(standalone(plot.svg), encoding="utf-8")
