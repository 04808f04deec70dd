"""A report in its three forms, which say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baker.ab.files import write_whole
from baker.ab.markdown import markdown
from baker.ab.page import page

if TYPE_CHECKING:
    from pathlib import Path

    from baker.ab.report import Report


def publish(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write report.html, report.md and report.json, each whole; raises OSError."""
    texts = {
        "report.html": page(report),
        "report.md": markdown(report),
        "report.json": report.model_dump_json() + "\n",
    }
    write_whole(folder, texts)
    return tuple(folder / name for name in texts)
