"""A report as Markdown: the tables of the HTML page, without its plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.baker.compare.report.summary_tables import (
    candidates_table,
    one_line,
    passages_table,
    summary_table,
    verdict,
    visible,
)
from hearthd.baker.presentation.table import escape_markdown, markdown_table

if TYPE_CHECKING:
    from hearthd.baker.compare.report.summary import Report, SideInfo


def markdown(report: Report) -> str:
    """The text of report.md."""
    parts = [
        f"# {escape_markdown(report.b.name)} against {escape_markdown(report.a.name)}",
        f"**{escape_markdown(verdict(report))}**",
        "\n".join(f"- {escape_markdown(sentence)}" for sentence in report.failures),
        f"{_side('A', report.a)}\n{_side('B', report.b)}",
        escape_markdown(report.computed),
        "\n".join(f"- {escape_markdown(note)}" for note in report.notes),
        "## Summary",
        markdown_table(summary_table(report)),
        "## Passages",
        markdown_table(passages_table(report)),
        "## Largest differences" if report.worst else "",
    ]
    for position in report.worst:
        table = candidates_table(position)
        context = (
            f"{escape_markdown(one_line(position.before))}**{escape_markdown(visible(position.token))}**"
            f"{escape_markdown(one_line(position.after))}"
        )
        parts += [f"### {escape_markdown(table.title)}", context, markdown_table(table)]
    parts.append(f"Made {report.made} by Hearth {report.hearth}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _side(letter: str, info: SideInfo) -> str:
    details = "; ".join(f"{key}: {value}" for key, value in info.details.items())
    return escape_markdown(
        f"- {letter}: {info.name} ({info.kind}; provides {info.gives}; {details})"
    )
