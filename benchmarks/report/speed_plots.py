"""The plots of the benchmarks, as SVG files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.baker.presentation.plots import svg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

_MIN_KL = 1e-6  # smaller values, such as 0, are drawn here


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

    def draw(axes: Axes) -> None:
        axes.set(xlabel="mean KL divergence from the reference, nats", xscale="log")
        axes.set(ylabel="decode, tokens/s")
        axes.margins(0.2)  # for the names
        for engine, is_hearth in (("Hearth", True), ("llama.cpp", False)):
            chosen = [point for point in points if point.is_hearth == is_hearth]
            kl = [max(point.kl, _MIN_KL) for point in chosen]
            axes.plot(kl, [point.speed for point in chosen], "o", label=engine)
            for at, point in zip(kl, chosen, strict=True):
                # A Hearth model and a llama.cpp model often have almost the same position.
                offset = (0, 6) if is_hearth else (0, -14)
                axes.annotate(
                    point.name, (at, point.speed), offset, textcoords="offset points", ha="center"
                )

    _save(path, svg("Decode speed by KL divergence", draw))


def speed_by(path: Path, lines: Sequence[SpeedLine], *, x_label: str, what: str) -> None:
    """Draw a line for each model, dashed for llama.cpp: `what` in tokens/s by `x_label`."""

    def draw(axes: Axes) -> None:
        axes.set(xlabel=x_label, ylabel=f"{what}, tokens/s")
        axes.set_xticks(sorted({at for line in lines for at in line.speeds}))
        for line in lines:
            style = "o-" if line.is_hearth else "o--"
            axes.plot([*line.speeds], [*line.speeds.values()], style, label=line.name)
        axes.set_ylim(bottom=0)

    _save(path, svg(f"{what} speed by {x_label}", draw))


def _save(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
