"""Whether the files of a bundle are still those that were opened.

Weights are mapped. A bundle that takes the place of another does no harm to a server that has the
other one open. But to write into a file that is mapped changes what is computed, and to make it
shorter, which `cp` does first of all, kills the process at the next look (SIGBUS). It cannot be
kept from happening; it can be noticed, if the process lives on.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import stat_result
    from pathlib import Path


class OpenedFiles:
    """The files of a folder, if there is one, as they are when this is made."""

    def __init__(self, folder: Path | None) -> None:
        self._before: dict[Path, stat_result] = {}
        if folder is None:
            return
        with contextlib.suppress(OSError):  # whoever opens the bundle will say so
            self._before = {path: path.stat() for path in sorted(folder.iterdir())}

    def overwritten(self) -> tuple[str, ...]:
        """The names of the files that were written to since, but for those that were replaced."""
        return tuple(path.name for path, before in self._before.items() if _written(path, before))


def _written(path: Path, before: stat_result) -> bool:
    try:
        now = path.stat()
    except OSError:
        return False  # the file is gone, and with it only its name
    same_file = (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)
    return same_file and (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns)
