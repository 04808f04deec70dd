"""Disk space that is kept for deleting records on a full disk.

A file takes the space. It is removed when a deletion needs it, and written again when
there is space.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE = "state.reserve"
_SIZE = 2**22  # bytes, at most
_SHARE = 8  # on a small disk: this part of its free space
_PAGE = 4096  # of SQLite
# A deletion needs space for the log's pages, which are moved first, and for its own.
_LOG_SHARE = 2


class Reserve:
    """The reserve in a folder, which is created. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / FILE
        existing = self._file.stat().st_size if self._file.exists() else 0
        free = shutil.disk_usage(folder).free + existing
        self._size = min(_SIZE, free // _SHARE)
        self.log_pages = max(1, self._size // _LOG_SHARE // _PAGE)  # SQLite may keep in its log
        self.keep()

    def keep(self) -> bool:
        """Write the file again if it is missing; return whether there is space for it."""
        if self._file.exists() and self._file.stat().st_size >= self._size:
            return True
        try:
            with self._file.open("wb") as file:
                file.write(os.urandom(self._size))  # a file system may compress zeros
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # the disk is full
            self.free()
            return False
        return True

    def free(self) -> None:
        """Give the space to others."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)
