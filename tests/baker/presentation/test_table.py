"""A table says the same in the terminal and in Markdown, and its cells are never markup."""

from __future__ import annotations

import pytest
from rich.console import Console

from hearthd.baker.presentation.table import Table, escape_markdown, markdown_table, terminal_table

TABLE = Table(
    title="Costs [bold]",
    headings=("name", "a|b", "seconds"),
    rows=(("first [red]", "1", "2"), ("  indented", "<b>", "-")),
    failed_rows=frozenset({1}),
)


def in_terminal(table: Table, *, color: bool = False) -> str:
    console = Console(width=80, force_terminal=color, color_system="standard" if color else None)
    with console.capture() as captured:
        console.print(terminal_table(table))
    return captured.get()


def test_the_terminal_shows_every_cell_as_it_is() -> None:
    shown = in_terminal(TABLE)
    for text in (TABLE.title, *TABLE.headings, *(cell for row in TABLE.rows for cell in row)):
        assert text in shown


def test_only_failed_rows_are_red() -> None:
    lines = in_terminal(TABLE, color=True).splitlines()
    red = [line for line in lines if "\x1b[31m" in line]
    assert len(red) == 1
    assert "indented" in red[0]


def test_markdown_escapes_every_cell_and_keeps_the_indent() -> None:
    assert markdown_table(TABLE).splitlines() == [
        r"| name | a\|b | seconds |",
        "|---|---:|---:|",
        r"| first \[red\] | 1 | 2 |",
        r"| &emsp;indented | \<b\> | - |",
    ]
    assert escape_markdown("*a* `b` & #c") == r"\*a\* \`b\` \& \#c"


def test_a_row_with_a_missing_cell_is_rejected() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells under 2 headings"):
        Table(title="", headings=("a", "b"), rows=(("only one",),))
