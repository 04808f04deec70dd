"""How a bundle comes to its place on disk: made beside it, put there whole.

What is promised, whatever ends the work, SIGKILL and a power cut too: at `out` lies the bundle
that was there before, or the new one, each whole, or nothing if there was nothing before. On Linux
this is so at every moment, as the two change places in one step (renameat2); where the file system
cannot do that, there is none for the moment between two renames. A bundle's files are never
written to once they are in their place, as a server may have them mapped.

What a bake that was killed has left, a folder `.NAME.bake-XXXXXXXX` beside the place, goes with the
next bake to that place. A bake holds a lock on its folder, which ends with its process.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from models.bundle import BundleError, Corrupt, WrongFormat, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
# Of renameat2(2): a path is relative to the working directory; both paths change places.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


class BakeError(Exception):
    """A bundle cannot be made or put in place; the message says why."""


@contextmanager
def folder_beside(out: Path, *, size: int) -> Iterator[Path]:
    """A folder on the same disk as `out`, gone afterwards, for a bundle of about `size` bytes.

    When the block ends without an error, what it made is put to `out`, in place of an older bundle
    there. Raises BakeError at once when `out` is in use or the disk is too small, and when the
    disk is found to be full in the block.
    """
    out = Path(os.path.realpath(out))  # of a link, what it names is replaced
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and not _is_bundle(out):
        raise BakeError(f"{out} exists and is not a bundle: choose another --out")
    with _staging(out) as folder:
        if shutil.disk_usage(folder).free < size:
            raise BakeError(_too_small(out, size))
        made = folder / "bundle"
        made.mkdir()
        try:
            yield made
            _sync([*made.iterdir(), made])
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            name = Path(error.filename).name if error.filename else "the bundle"
            reason = f"{name} cannot be written ({error.strerror}): "
            raise BakeError(reason + _too_small(out, size)) from error
        _put(made, out)


def _too_small(out: Path, size: int) -> str:
    free = shutil.disk_usage(out.parent).free
    return (
        f"a bundle of about {size / 1e6:.0f} MB is to lie in {out.parent}, which has "
        f"{free / 1e6:.0f} MB free: make room, or choose another --out"
    )


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """A locked folder beside `out`; removes those that killed bakes have left there."""
    prefix = f".{out.name}.bake-"
    parent = os.open(out.parent, os.O_RDONLY)
    try:
        _lock(parent, wait=True)  # else another bake could remove a folder that is not locked yet
        for left in out.parent.glob(glob.escape(prefix) + "*"):
            _remove_unlocked(left)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
        held = os.open(folder, os.O_RDONLY)
        _lock(held, wait=False)
    finally:
        os.close(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(held)


def _remove_unlocked(left: Path) -> None:
    try:
        folder = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return  # no folder of ours
    try:
        if _lock(folder, wait=False):
            shutil.rmtree(left)
    finally:
        os.close(folder)


def _lock(folder: int, *, wait: bool) -> bool:
    """Lock an open folder until it is closed; False if it is locked, or cannot be."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # BlockingIOError, or a file system without locks
        return False
    return True


def _sync(paths: Iterable[Path]) -> None:
    """Have files, or the names in folders, on disk: what is renamed then survives a power cut."""
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _put(made: Path, out: Path) -> None:
    """Put a folder to `out`; what was there goes beside where it was made."""
    try:
        _exchange(made, out)
    except FileNotFoundError:
        made.rename(out)
    except OSError as error:
        if error.errno not in _CANNOT_EXCHANGE:
            raise
        if out.exists():
            out.rename(made.parent / "replaced")
        made.rename(out)
    _sync([out.parent])


def _exchange(one: Path, other: Path) -> None:
    """Have two paths change places in one step; raises OSError, ENOSYS without renameat2(2)."""
    renameat2 = getattr(_LIBC, "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.ENOSYS, "renameat2", str(other))
    names = os.fsencode(one), os.fsencode(other)
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def _is_bundle(path: Path) -> bool:
    try:
        read_manifest(path)
    except (Corrupt, WrongFormat):
        return True  # damaged, or of another version: whoever reads it is told to bake it again
    except BundleError:
        return False
    return True
