"""Temporary folders that are removed in the end, also if a signal ends the process.

A killed process leaves its folder without a lock. The next temporary folder with the same prefix in
the same place removes such folders.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.runtime.system.interrupts import at_interrupt
from hearthd.runtime.system.operating_system import LOCKS_FOLDERS, lock, open_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATTEMPTS = 5  # a system call in progress may add a file
_RANDOM_BYTES = 4  # of a name


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder in `parent`, by default the system's; it is removed after the block.

    Folders with this prefix that killed processes left in `parent` are removed, too, but not on
    Windows.
    """
    parent = Path(parent or tempfile.gettempdir())
    folder = parent / f"{prefix}{secrets.token_hex(_RANDOM_BYTES)}"
    # Registered before the folder exists: a signal at any moment removes it.
    with at_interrupt(lambda: _remove(folder)), ExitStack() as locks:
        try:
            if LOCKS_FOLDERS:
                locks.callback(os.close, _make_locked(folder))
                with suppress(OSError):  # a folder that cannot be listed
                    _remove_leftovers(prefix, parent)
            else:
                folder.mkdir()
            yield folder
        finally:
            _remove(folder)


def _make_locked(folder: Path) -> int:
    """Make a folder, again if another process removes it before it is locked; a descriptor."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError), ExitStack() as unlocked:
            descriptor = open_folder(folder)
            unlocked.callback(os.close, descriptor)
            with suppress(OSError):  # a file system without locks
                lock(descriptor, wait=True)
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                unlocked.pop_all()
                return descriptor


def _remove_leftovers(prefix: str, parent: Path) -> None:
    """Remove the temporary folders with a prefix that no process has locked."""
    name = re.compile(f"{re.escape(prefix)}[0-9a-f]{{{2 * _RANDOM_BYTES}}}")
    for path in parent.iterdir():
        with suppress(OSError):  # it is another user's, locked, or was removed
            if name.fullmatch(path.name):
                descriptor = open_folder(path, follow=False)
                try:
                    lock(descriptor)
                    _remove(path)
                finally:
                    os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a folder that another thread may still be adding files to, if it exists."""
    for _ in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
