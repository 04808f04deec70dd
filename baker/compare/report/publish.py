"""Write a report as HTML, Markdown and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.baker.atomic_file import write_atomically
from hearthd.baker.compare.report.html_page import page
from hearthd.baker.compare.report.markdown import markdown

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.compare.report.summary import Report


def publish(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write report.html, report.md and report.json, each atomically; raises OSError."""
    texts = {
        "report.html": page(report),
        "report.md": markdown(report),
        "report.json": report.model_dump_json() + "\n",
    }
    write_atomically(folder, texts)
    return tuple(folder / name for name in texts)
