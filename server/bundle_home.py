"""The folder that keeps bundles by name, so that a command can name a bundle from anywhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from models.bundle import MANIFEST, NotABundle
from runtime.interrupts import at_interrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT = "HEARTH_HOME"
DEFAULT = Path("~/.local/share/hearth")
HELP = (
    "Folder that keeps bundles by name. `hearth run` bakes into it, `hearth list` and `hearth rm` "
    "manage it, and every BUNDLE can be a name in it."
)


def home() -> Path:
    """The folder of $HEARTH_HOME, or the default one."""
    return Path(os.environ.get(ENVIRONMENT, DEFAULT)).expanduser()


def find_bundle(bundle: Path, folder: Path | None = None) -> Path:
    """The folder of a bundle: the path, or if it does not exist, the bundle of that name.

    `folder` keeps the bundles; None for `home()`. If there is neither, the path is returned.
    """
    named = (home() if folder is None else folder.expanduser()) / bundle
    return named if not bundle.exists() and named.exists() else bundle


def is_bundle(folder: Path) -> bool:
    """Whether a folder has a manifest."""
    return (folder / MANIFEST).is_file()


def bundles_in(folder: Path) -> Iterator[Path]:
    """The bundles in a folder, by name."""
    return (manifest.parent for manifest in sorted(folder.expanduser().glob(f"*/{MANIFEST}")))


def remove_bundle(folder: Path) -> int:
    """Remove a bundle; returns its size in bytes. A link is removed, and not what it names.

    Raises NotABundle for a folder without a manifest or with something else than files in it.
    """
    if not is_bundle(folder):
        raise NotABundle(f"{folder}: not a bundle: it has no {MANIFEST}; nothing is removed")
    files = list(folder.iterdir())
    if other := [path.name for path in files if path.is_dir() or path.is_symlink()]:
        raise NotABundle(
            f"{folder}: not only a bundle: it contains {min(other)!r}; nothing is removed"
        )
    size = sum(path.stat().st_size for path in files)
    if folder.is_symlink():
        folder.unlink()
    else:
        with at_interrupt(lambda: shutil.rmtree(folder, ignore_errors=True)):
            shutil.rmtree(folder)
    return size
