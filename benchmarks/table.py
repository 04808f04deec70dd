"""Tables of medians, with the spread of the rounds, ratios and goals: printed, or as Markdown.

It knows figures by name, one dictionary a round, and not what they are figures of.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console
from rich.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH = 120  # of a table in a file or a pipe

Rounds: TypeAlias = list[dict[str, float]]
# What the ratio of a figure, by its name, must reach.
Goals: TypeAlias = "Mapping[str, float]"


@dataclass(frozen=True)
class Figure:
    """A row of the table: the figure's name in a round, its label with the unit, what is better."""

    name: str
    label: str
    more_is_better: bool = False


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over the rounds: the median, the smallest and the largest."""

    median: float
    low: float
    high: float

    @property
    def range(self) -> str:
        """The smallest to the largest, in words; nothing if all are the same."""
        return f"{self.low:.4g} to {self.high:.4g}" if self.low < self.high else ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A figure of one side or more; None for a side that does not have it.

    ratio   the first side's median over the second's, of two sides that both have one
    goal    what the ratio must reach: at least, or at most where less is better
    """

    figure: Figure
    sides: tuple[Spread | None, ...]
    ratio: float | None
    goal: float | None

    @property
    def met(self) -> bool | None:
        """Whether the ratio reaches its goal; None if one of them is missing."""
        if self.ratio is None or self.goal is None:
            return None
        return self.ratio >= self.goal if self.figure.more_is_better else self.ratio <= self.goal


def medians(rounds: Rounds) -> dict[str, float]:
    """The median of each figure that every round has."""
    common = [name for name in rounds[0] if all(name in figures for figures in rounds)]
    return {name: statistics.median(figures[name] for figures in rounds) for name in common}


def rows(
    figures: Sequence[Figure], measured: Mapping[str, Rounds], goals: Goals | None = None
) -> list[Row]:
    """The figures that any side has, as rows."""
    found = []
    for figure in figures:
        sides = tuple(_spread(figure.name, rounds) for rounds in measured.values())
        if any(sides):
            goal = (goals or {}).get(figure.name)
            found.append(Row(figure=figure, sides=sides, ratio=_ratio(sides), goal=goal))
    return found


def print_table(
    title: str,
    figures: Sequence[Figure],
    measured: Mapping[str, Rounds],
    goals: Goals | None = None,
) -> None:
    """Print a table; of two sides, with ratios, and with their goals if there are any."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    table = Table(Column(no_wrap=True), box=None, padding=(0, 1))
    for name in measured:
        table.add_column(name, justify="right")
        table.add_column("min to max", style="dim")
    compared = len(measured) == 2
    for heading in ("ratio", *(("goal",) if goals else ())) if compared else ():
        table.add_column(heading, justify="right")
    for row in rows(figures, measured, goals):
        cells = [row.figure.label]
        for side in row.sides:
            cells += [f"{side.median:.4g}", side.range] if side else ["", ""]
        if compared:
            cells += [_ratio_cell(row), _goal_cell(row)] if goals else [_ratio_cell(row)]
        table.add_row(*cells, style=None if row.met is not False else "red")
    console.print(title, highlight=False, soft_wrap=True)
    console.print(table)
    if compared:
        console.print(f"ratio: {' / '.join(measured)}; * less is better", highlight=False)


def markdown(
    figures: Sequence[Figure], measured: Mapping[str, Rounds], goals: Goals | None = None
) -> str:
    """The same table as Markdown, for a document."""
    headings = ["", *measured]
    if len(measured) == 2:
        headings += ["ratio", "goal"] if goals else ["ratio"]
    lines = [headings, ["---"] * len(headings)]
    for row in rows(figures, measured, goals):
        cells = [row.figure.label.replace("  ", "&emsp;")]
        cells += [_whole_cell(side) if side else "" for side in row.sides]
        tail = [_ratio_cell(row).strip(), _goal_cell(row)]
        lines.append([*cells, *tail][: len(headings)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _spread(name: str, rounds: Rounds) -> Spread | None:
    values = [figures[name] for figures in rounds if name in figures]
    if not values:
        return None
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def _ratio(sides: Sequence[Spread | None]) -> float | None:
    if len(sides) != 2 or sides[0] is None or sides[1] is None or not sides[1].median:
        return None
    return sides[0].median / sides[1].median


def _whole_cell(side: Spread) -> str:
    return f"{side.median:.4g} ({side.range})" if side.range else f"{side.median:.4g}"


def _ratio_cell(row: Row) -> str:
    if row.ratio is None:
        return ""
    return f"{row.ratio:.2f}{' ' if row.figure.more_is_better else '*'}"


def _goal_cell(row: Row) -> str:
    if row.goal is None:
        return ""
    return f"{'at least' if row.figure.more_is_better else 'at most'} {row.goal:g}"
