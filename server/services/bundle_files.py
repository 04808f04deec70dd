"""Remove and copy the folders of bundles."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from typing import TYPE_CHECKING

from hearthd.bundle import NotABundle, require_only_bundle, write_manifest
from hearthd.runtime.system.interrupts import at_interrupt

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.bundle import Manifest

# A file system without hard links or the limit of a file's names, or a file of another user.
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)
_COPYING = threading.Lock()  # copies with one name have one temporary folder


def remove_bundle(folder: Path) -> int:
    """Remove a bundle; returns its size in bytes. A link is removed, and not what it names.

    Raises NotABundle as `require_only_bundle`.
    """
    try:
        require_only_bundle(folder)
    except NotABundle as error:
        raise NotABundle(
            f"{error}; nothing is removed; `hearth list` shows the names of bundles"
        ) from error
    size = sum(path.stat().st_size for path in folder.iterdir())
    if folder.is_symlink():
        folder.unlink()
    else:
        with at_interrupt(lambda: shutil.rmtree(folder, ignore_errors=True)):
            shutil.rmtree(folder)
    return size


def copy_bundle(folder: Path, destination: Path, manifest: Manifest | None = None) -> None:
    """Copy a bundle: its files are linked where that is possible, since none is changed in place.

    The copy can have another `manifest`. Raises OSError, such as FileExistsError.
    """
    temporary = destination.with_name(f".{destination.name}.part")
    with _COPYING:
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            shutil.copymode(folder, temporary)
            for file in (path for path in folder.iterdir() if path.is_file()):
                _link_or_copy(file, temporary / file.name)
            if manifest is not None:
                write_manifest(temporary, manifest)
            temporary.rename(destination)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _link_or_copy(source: Path, destination: Path) -> None:
    """Make a file appear under a second name; raises OSError."""
    try:
        os.link(source, destination)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copy2(source, destination)
