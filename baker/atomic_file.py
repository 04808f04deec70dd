"""Write files atomically: complete or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_atomically(folder: Path, texts: Mapping[str, str]) -> None:
    """Write UTF-8 texts by file name; all are written before the first one is moved in place."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hearth.", dir=folder) as temporary:
        for name, text in texts.items():
            (Path(temporary) / name).write_text(text, encoding="utf-8")
        for name in texts:
            (Path(temporary) / name).replace(folder / name)
