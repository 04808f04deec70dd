"""Write a bundle to a temporary folder and move it to its destination atomically.

Whatever ends a bake, including SIGKILL and a power failure, the destination has the complete old
bundle, the complete new one, or nothing if there was none before. On Linux, old and new are
exchanged in one step (renameat2). On a file system without this, the destination is absent for the
moment between two renames. Files of a bundle are never modified in place, since a server may have
them mapped.

A killed bake leaves a folder `.NAME.bake-XXXXXXXX` beside the destination; the next bake to this
destination removes it, and puts an old bundle back that it has. A running bake holds a lock on its
folder.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import shutil
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.baker.temporary_folder import temporary_folder
from hearthd.bundle import NotABundle, require_only_bundle
from hearthd.runtime.system.interrupts import at_interrupt
from hearthd.runtime.system.operating_system import (
    LOCKS_FOLDERS,
    c_function,
    lock,
    open_folder,
    sync,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
_REPLACED = "replaced"  # name of the old bundle in a temporary folder, without renameat2
# renameat2(2): paths are relative to the working directory; exchange both paths.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class BakeError(Exception):
    """A bundle cannot be made or moved to its destination; the message says why."""


def check_destination(out: Path | None) -> None:
    """Raise BakeError if `folder_beside` would, except for the size of the disk.

    A bake asks this first: it needs the folder only after minutes of work. None is the default
    folder, whose name is not known yet.
    """
    if out is None:
        return
    out = Path(os.path.realpath(out))
    _require_bundle(out)
    parent = next(folder for folder in out.parents if folder.exists())
    with _naming(out), temporary_folder(".hearth.", parent):
        pass


@contextmanager
def folder_beside(out: Path, *, size: int) -> Iterator[Path]:
    """A temporary folder on the disk of `out` for a bundle of about `size` bytes.

    If the block ends without an error, the folder replaces `out`. Raises BakeError at once if
    `out` is not a bundle or the disk is too small, and if the disk becomes full in the block.
    """
    out = Path(os.path.realpath(out))  # replace the target of a symbolic link
    with _naming(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    _require_bundle(out)
    with _staging(out) as folder:
        if shutil.disk_usage(folder).free < size:
            raise BakeError(_too_small(out, size))
        bundle = folder / "bundle"
        bundle.mkdir()
        try:
            yield bundle
            _sync([*bundle.iterdir(), bundle])
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            name = Path(error.filename).name if error.filename else "the bundle"
            reason = f"{name} cannot be written ({error.strerror}): "
            raise BakeError(reason + _too_small(out, size)) from error
        _put(bundle, out)


def _require_bundle(out: Path) -> None:
    """Raise BakeError if `out` exists, unless it is a bundle alone: it will be removed."""
    try:
        if out.exists():
            require_only_bundle(out)
    except NotABundle as error:
        raise BakeError(f"--out: {error}; choose another folder") from error


def _prefix(out: Path) -> str:
    return f".{out.name}.bake-"


def _too_small(out: Path, size: int) -> str:
    free = shutil.disk_usage(out.parent).free
    return (
        f"the bundle needs about {size / 1e6:.0f} MB, and {out.parent} has {free / 1e6:.0f} MB "
        "free; free disk space, or choose another folder"
    )


@contextmanager
def _naming(out: Path) -> Iterator[None]:
    """Report an error with another path, such as a temporary one, as an error with `out`."""
    try:
        yield
    except OSError as error:
        raise BakeError(f"--out: {out} cannot be written: {error.strerror}") from error


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """A locked folder beside `out`; removes the folders that killed bakes left there."""
    prefix = _prefix(out)
    parent = open_folder(out.parent)
    try:
        # Else another bake could remove the new folder before it is locked.
        _lock(parent, wait=True)
        for leftover in out.parent.glob(glob.escape(prefix) + "*"):
            _remove_unlocked(leftover, out)
        with _naming(out), ExitStack() as stack:
            folder = stack.enter_context(temporary_folder(prefix, out.parent))
            stack.enter_context(at_interrupt(lambda: _restore(folder, out)))
            if not LOCKS_FOLDERS:  # otherwise it is locked already
                held = open_folder(folder)
                stack.callback(os.close, held)
                _lock(held, wait=False)
            context = stack.pop_all()
    finally:
        os.close(parent)
    with context:
        yield folder


def _remove_unlocked(leftover: Path, out: Path) -> None:
    try:
        folder = open_folder(leftover, follow=False)
    except OSError:
        return  # not a folder of a bake
    try:
        if _lock(folder, wait=False):
            _restore(leftover, out)
            shutil.rmtree(leftover)
    finally:
        os.close(folder)


def _restore(folder: Path, out: Path) -> None:
    """Move back the old bundle if a bake ended between the two renames of `_put`."""
    with suppress(OSError):
        if not out.exists():
            (folder / _REPLACED).rename(out)


def _lock(folder: int, *, wait: bool) -> bool:
    """Lock an open folder until it is closed; returns False if that is not possible."""
    try:
        lock(folder, wait=wait)
    except OSError:  # BlockingIOError, or a file system without locks
        return False
    return True


def _sync(paths: Iterable[Path]) -> None:
    """Flush files, or the names in folders, to disk, so that a rename survives a power failure.

    Then the system may drop them from its cache, where writing them in blocks left small pages:
    what maps the weights next reads them into huge pages, if the file system has them.
    """
    for path in paths:
        sync(path, cached=False)


def _put(new: Path, out: Path) -> None:
    """Move a folder to `out`; an old bundle moves to the temporary folder."""
    try:
        _exchange(new, out)
    except FileNotFoundError:
        new.rename(out)
    except OSError as error:
        if error.errno not in _CANNOT_EXCHANGE:
            raise
        if out.exists():
            out.rename(new.parent / _REPLACED)
        new.rename(out)
    _sync([out.parent])


def _exchange(path: Path, other: Path) -> None:
    """Exchange two paths in one step; raises OSError, with ENOSYS without renameat2(2)."""
    renameat2 = c_function("renameat2")
    if renameat2 is None:
        raise OSError(errno.ENOSYS, "renameat2", str(other))
    names = os.fsencode(path), os.fsencode(other)
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))
