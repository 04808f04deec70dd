"""A table of text, written to the terminal or as Markdown. The report's page writes it as HTML."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table as TerminalTable
from rich.text import Text

from hearthd.baker.presentation.console import open_console

if TYPE_CHECKING:
    from collections.abc import Sequence

# Characters with a meaning in Markdown or HTML, anywhere in a line.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#|~&!]")
_INDENT = "  "
_PIPE_WIDTH = 120  # characters, where the output is not a terminal


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells under headings; the first column is text, the others are numbers.

    Every row has as many cells as there are headings. A first cell that starts with two spaces is
    indented. `failed_rows` are the indexes of rows that the terminal shows in red.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    failed_rows: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(f"a row of {len(row)} cells under {len(self.headings)} headings")


def terminal_table(table: Table) -> TerminalTable:
    """The table for a Rich console. Cells are plain text, not Rich markup."""
    shown = TerminalTable(title=Text(table.title), title_justify="left", box=None, padding=(0, 1))
    for column, heading in enumerate(table.headings):
        shown.add_column(Text(heading), justify="right" if column else "left", no_wrap=not column)
    for index, row in enumerate(table.rows):
        style = "red" if index in table.failed_rows else None
        shown.add_row(*map(Text, row), style=style)
    return shown


def print_table(table: Table) -> None:
    """Print the table on the standard output, 120 characters wide unless that is a terminal."""
    console = open_console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)
    if table.title:
        console.print(table.title, markup=False, soft_wrap=True)
    shown = terminal_table(table)
    shown.title = None  # printed above in full: Rich would wrap it to the table's width
    console.print(shown)


def markdown_table(table: Table) -> str:
    """The table as Markdown, without its title."""
    numbers = "---:|" * (len(table.headings) - 1)
    lines = [_row(table.headings), f"|---|{numbers}", *map(_row, table.rows)]
    return "\n".join(lines)


def escape_markdown(text: str) -> str:
    """The text with every character escaped that Markdown or HTML would take for markup."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def _row(cells: Sequence[str]) -> str:
    first, *others = map(escape_markdown, cells)
    if first.startswith(_INDENT):
        first = f"&emsp;{first.strip()}"
    return f"| {' | '.join([first, *others])} |"
