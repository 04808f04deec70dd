"""A report as Markdown: the tables of the page, without its plots."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from baker.compare.report.summary_tables import (
    candidates_table,
    one_line,
    passages_table,
    summary_table,
    verdict,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from baker.compare.report.summary import Report, SideInfo
    from baker.compare.report.summary_tables import Table

# What means something in Markdown or HTML, wherever it stands in a line.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#|~&!]")


def markdown(report: Report) -> str:
    """The text of report.md."""
    parts = [
        f"# {_plain(report.b.name)} against {_plain(report.a.name)}",
        f"**{_plain(verdict(report))}**",
        "\n".join(f"- {_plain(sentence)}" for sentence in report.failures),
        f"{_side('A', report.a)}\n{_side('B', report.b)}",
        _plain(report.computed),
        "\n".join(f"- {_plain(note)}" for note in report.notes),
        "## Summary",
        _grid(summary_table(report)),
        "## Passages",
        _grid(passages_table(report)),
        "## Where they differ most" if report.worst else "",
    ]
    for place in report.worst:
        table = candidates_table(place)
        context = (
            f"{_plain(one_line(place.before))}**{_plain(visible(place.token))}**"
            f"{_plain(one_line(place.after))}"
        )
        parts += [f"### {_plain(table.title)}", context, _grid(table)]
    parts.append(f"Made {report.made} by Hearth {report.hearth}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _side(letter: str, info: SideInfo) -> str:
    details = "; ".join(f"{key}: {value}" for key, value in info.details.items())
    return _plain(f"- {letter}: {info.name} ({info.kind}; tells {info.gives}; {details})")


def _grid(table: Table) -> str:
    numbers = "---:|" * (len(table.headings) - 1)
    return "\n".join([_row(table.headings), f"|---|{numbers}", *(_row(row) for row in table.rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """The text with nothing in it that Markdown would take for markup."""
    return _SPECIAL.sub(r"\\\g<0>", text)
