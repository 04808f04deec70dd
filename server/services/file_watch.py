"""Detect that files of a bundle are overwritten while it is served.

The weights are memory-mapped. Replacing the folder or renaming a new file into it is safe: the
server keeps the old file open. Writing into a mapped file changes the results, and truncating it,
which `cp` does first, crashes the process at the next access (SIGBUS). The server cannot prevent
this, but it can report it as long as the process runs.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import stat_result
    from pathlib import Path


class FileWatch:
    """Remembers the files of a folder, if there is one, as they are when it is created."""

    def __init__(self, folder: Path | None) -> None:
        self._before: dict[Path, stat_result] = {}
        if folder is None:
            return
        with contextlib.suppress(OSError):  # opening the bundle reports it
            self._before = {path: path.stat() for path in sorted(folder.iterdir())}

    def overwritten(self) -> tuple[str, ...]:
        """The names of files that were written to since then; replaced files do not count."""
        return tuple(path.name for path, before in self._before.items() if _written(path, before))


def _written(path: Path, before: stat_result) -> bool:
    try:
        now = path.stat()
    except OSError:
        return False  # only the name is gone; the server still has the file
    same_file = (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)
    return same_file and (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns)
