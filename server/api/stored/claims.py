"""Which process does the work of a stored record, where several servers use one folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from hearthd.runtime.system.operating_system import lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SUFFIX = ".claim"
_WAIT = 1.0  # seconds before a claim of another process is tried again


class Claims:
    """The claims of this process on the records of a folder, which exists; None: of no folder.

    A claim is a lock of a file, so it ends with the process, also by SIGKILL.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        for path in folder.glob(f"*{SUFFIX}") if folder else ():  # of processes that were killed
            with contextlib.suppress(OSError):
                is_claim = path.is_file() and not path.stat().st_size  # others have contents
                if is_claim and (descriptor := _locked(path)) is not None:
                    _release(path, descriptor)

    @contextlib.asynccontextmanager
    async def claim(self, id_: str) -> AsyncIterator[None]:
        """Have the claim on a record; first wait while another process has it.

        Where the file system has no locks, or no space, this does not wait.
        """
        if self._folder is None:
            yield
            return
        path = self._folder / f"{id_}{SUFFIX}"
        try:
            while (descriptor := _locked(path)) is None:
                await asyncio.sleep(_WAIT)
        except OSError:
            yield
            return
        try:
            yield
        finally:
            _release(path, descriptor)


def _locked(path: Path) -> int | None:
    """A descriptor that locks a file, which is created; None if another one does. Raises OSError.

    The file may be removed, and created again, before it is locked: then it is another one.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        lock(descriptor)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _release(path: Path, descriptor: int) -> None:
    """Remove a locked file, then unlock it. Windows cannot remove an open file: there it stays."""
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(descriptor)
