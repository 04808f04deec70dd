"""Temporary folders that are removed in the end, also if a signal ends the process."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.runtime.system.interrupts import at_interrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATTEMPTS = 5  # a system call in progress may add a file


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder in `parent`, by default the system's; it is removed after the block."""
    folder = Path(parent or tempfile.gettempdir()) / f"{prefix}{secrets.token_hex(4)}"
    # Registered before the folder exists: a signal at any moment removes it.
    with at_interrupt(lambda: _remove(folder)):
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder that another thread may still be adding files to, if it exists."""
    for _ in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
