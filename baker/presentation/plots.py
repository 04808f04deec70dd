"""Plots as SVG pictures by matplotlib, 400 points wide so that the text can be read on a phone."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

_POINTS_PER_INCH = 72
_WIDTH, _HEIGHT = 400, 240  # points
# Gray and colors of medium brightness can be read on a light and on a dark page.
_GRAY = "#808080"
_COLORS = ["2a9d8f", "e07a3f", "4a7fc1", "a86bb5", "8a9a2e", "c2577f"]
_STYLE: dict[Any, object] = {
    "axes.edgecolor": _GRAY,
    "axes.grid": True,
    "axes.labelcolor": _GRAY,
    "axes.prop_cycle": f"cycler('color', {_COLORS})",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.alpha": 0.25,
    "grid.color": _GRAY,
    "legend.frameon": False,
    "savefig.transparent": True,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "hearth",  # the same plot gives the same bytes
    "text.color": _GRAY,
    "xtick.color": _GRAY,
    "ytick.color": _GRAY,
}
NO_PLOTS = "without plots, which need matplotlib: pip install 'hearthd[plots]'"
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def can_draw() -> bool:
    """Whether matplotlib is installed. Reports have no plots without it."""
    return find_spec("matplotlib") is not None


def svg(title: str, draw: Callable[[Axes], object], *, height: float = _HEIGHT) -> str:
    """The text of an SVG element with what `draw` draws; screen readers read `title`.

    A legend names the lines that have a label, if there are two or more. `height` is in points.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    written = io.StringIO()
    with rc_context(_STYLE):
        size = (_WIDTH / _POINTS_PER_INCH, height / _POINTS_PER_INCH)
        figure = Figure(size, layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        names = axes.get_legend_handles_labels()[1]
        if len(names) > 1:
            figure.legend(loc="outside upper left", ncols=2)
        figure.savefig(written, format="svg", metadata=_NO_METADATA)
    text = written.getvalue()
    element = text[text.index("<svg ") :]
    return element.replace("<svg ", f'<svg role="img" aria-label={quoteattr(title)} ', 1)
