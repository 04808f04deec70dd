"""Measured figures over rounds, as a table: medians, ranges, ratios and goals.

A round is a dictionary from the name of a figure to its value.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hearthd.baker.presentation.table import Table, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Rounds: TypeAlias = list[dict[str, float]]
# The ratio that a figure, by its name, must reach.
Goals: TypeAlias = "Mapping[str, float]"


@dataclass(frozen=True)
class Figure:
    """A row of a table: the name of the figure in a round, and its label with the unit."""

    name: str
    label: str
    higher_is_better: bool = False


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over the rounds."""

    median: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The median, and the range in brackets unless all rounds are equal."""
        median = f"{self.median:.4g}"
        if self.low == self.high:
            return median
        return f"{median} ({self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A figure of one contender or more; None where a contender does not have it.

    ratio   the first median divided by the second, if there are exactly two
    goal    the ratio to reach: at least, or at most where lower is better
    """

    figure: Figure
    spreads: tuple[Spread | None, ...]
    ratio: float | None
    goal: float | None

    @property
    def met(self) -> bool | None:
        """Whether the ratio reaches its goal; None without a ratio or a goal."""
        if self.ratio is None or self.goal is None:
            return None
        if self.figure.higher_is_better:
            return self.ratio >= self.goal
        return self.ratio <= self.goal


def medians(rounds: Rounds) -> dict[str, float]:
    """The median of each figure that every round has."""
    common = [name for name in rounds[0] if all(name in figures for figures in rounds)]
    return {name: statistics.median(figures[name] for figures in rounds) for name in common}


def rows(
    figures: Sequence[Figure], measured: Mapping[str, Rounds], goals: Goals | None = None
) -> list[Row]:
    """A row for each figure that at least one contender has."""
    result = []
    for figure in figures:
        spreads = tuple(_spread(figure.name, rounds) for rounds in measured.values())
        if any(spreads):
            goal = (goals or {}).get(figure.name)
            result.append(Row(figure=figure, spreads=spreads, ratio=_ratio(spreads), goal=goal))
    return result


def figures_table(
    title: str,
    figures: Sequence[Figure],
    measured: Mapping[str, Rounds],
    goals: Goals | None = None,
) -> Table:
    """A column for each contender; two also have a column of ratios, and one of goals if any."""
    headings = ["", *measured]
    if len(measured) == 2:
        headings += ["ratio", "goal"] if goals else ["ratio"]
    table_rows = rows(figures, measured, goals)
    cells = []
    for row in table_rows:
        medians_and_ranges = [spread.text if spread else "" for spread in row.spreads]
        line = [row.figure.label, *medians_and_ranges, _ratio_cell(row), _goal_cell(row)]
        cells.append(tuple(line[: len(headings)]))
    return Table(
        title=title,
        headings=tuple(headings),
        rows=tuple(cells),
        failed_rows=frozenset(index for index, row in enumerate(table_rows) if row.met is False),
    )


def print_figures(table: Table) -> None:
    """Print a table of figures, with a line that explains its ratios."""
    print_table(table)
    if "ratio" in table.headings:
        first, second = table.headings[1:3]
        print(f"ratio: {first} / {second}; * lower is better")  # noqa: T201


def _spread(name: str, rounds: Rounds) -> Spread | None:
    values = [figures[name] for figures in rounds if name in figures]
    if not values:
        return None
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def _ratio(spreads: Sequence[Spread | None]) -> float | None:
    if len(spreads) != 2 or spreads[0] is None or spreads[1] is None or not spreads[1].median:
        return None
    return spreads[0].median / spreads[1].median


def _ratio_cell(row: Row) -> str:
    if row.ratio is None:
        return ""
    return f"{row.ratio:.2f}" if row.figure.higher_is_better else f"{row.ratio:.2f}*"


def _goal_cell(row: Row) -> str:
    if row.goal is None:
        return ""
    return f"{'at least' if row.figure.higher_is_better else 'at most'} {row.goal:g}"
