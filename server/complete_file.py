"""Write a text file completely or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_completely(path: Path, text: str) -> None:
    """Replace a file, or a link; an error leaves it as it was. Raises OSError with its name.

    A device or a pipe, such as /dev/null, is written to and stays.
    """
    if path.exists() and not (path.is_file() or path.is_symlink()):
        path.write_text(text, encoding="utf-8")
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        error.filename = str(path)
        raise
