"""Files that are there whole or not at all, whatever interrupts the writing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_whole(folder: Path, texts: Mapping[str, str]) -> None:
    """Write UTF-8 texts by their names; all are on the disk before the first is put in place."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".ab.", dir=folder) as beside:
        for name, text in texts.items():
            (Path(beside) / name).write_text(text, encoding="utf-8")
        for name in texts:
            (Path(beside) / name).replace(folder / name)
