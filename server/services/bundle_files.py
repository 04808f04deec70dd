"""Remove and copy the folders of bundles."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from hearthd.bundle import NotABundle, require_only_bundle
from hearthd.runtime.system.interrupts import at_interrupt

if TYPE_CHECKING:
    from pathlib import Path


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


def copy_bundle(folder: Path, destination: Path) -> None:
    """Copy a bundle: its files are linked, since no file of a bundle is changed in place.

    Raises OSError, such as FileExistsError.
    """
    temporary = destination.with_name(f".{destination.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        shutil.copytree(folder, temporary, copy_function=os.link)
        temporary.rename(destination)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
