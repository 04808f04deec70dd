"""Blocks of the prefix cache on disk, so that they outlive the server.

    ROOT/<digest of the bundle>/<key of the block>.kv

A file is a header (magic, the bundle's digest, the key, the length of the rows, a sha256 of all
that and the rows) and the rows. It is written beside its place, synced and renamed by a thread of
its own, so a crash at any time leaves whole files and perhaps a `.part`, which nobody reads and
which goes when it is the oldest. A file that is not what its name says is deleted with a warning.

All bundles under ROOT share its limit; the least recently used files go first, by their mtime. The
file knows no tokens and no slots. Another server may use the same ROOT.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import queue
import stat
import struct
import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from runtime.interface import Rows

log = logging.getLogger(__name__)

_MAGIC = b"hearthk1"
_HEADER = struct.Struct("<8s32s32sQ32s")
# Blocks that may wait to be written. A disk that is slower than the model loses some, which costs
# time later; it never holds the model up.
_WAITING = 8


class CannotStore(Exception):
    """The folder cannot be used; the message says why."""


class PrefixStore:
    """The blocks of one bundle under `root`, which holds at most `limit_bytes` of files."""

    def __init__(self, root: Path, *, bundle: bytes, limit_bytes: int) -> None:
        """`bundle` is the digest of the manifest, 32 bytes. Raises CannotStore."""
        self._root = root
        self._bundle = bundle
        self._limit = limit_bytes
        self._folder = root / bundle.hex()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotStore(
                f"cannot keep the prefix cache in {root}: {reason}: choose another --cache-dir"
            ) from error
        self._waiting: queue.Queue[tuple[bytes, Rows] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._write_all, name="prefix-store", daemon=True)
        self._thread.start()

    def load(self, key: bytes) -> Rows | None:
        """The block of a key, or None: not there, or not whole and therefore deleted."""
        path = self._path(key)
        try:
            rows = _decode(_read(path, self._limit), self._bundle, key)
            if rows is None:
                log.warning("the prefix cache's file %s is damaged: deleting it", path)
                path.unlink()
            else:
                os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("the prefix cache cannot read %s: %s", path, error)
            return None
        return rows

    def save(self, key: bytes, rows: Rows) -> None:
        """Write a block some time later, or never if too many are waiting; returns at once."""
        try:
            self._waiting.put_nowait((key, rows))
        except queue.Full:
            log.debug("the disk is slow: a block of the prefix cache is not written")

    def close(self) -> None:
        """Write what is waiting and end the thread."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()

    def _path(self, key: bytes) -> Path:
        return self._folder / f"{key.hex()}.kv"

    # From here on everything runs in the store's thread.

    def _write_all(self) -> None:
        while (block := self._waiting.get()) is not None:
            key, rows = block
            try:
                _write(self._path(key), _encode(rows, self._bundle, key), rows)
                self._make_room()
            except OSError as error:
                log.warning(
                    "the prefix cache cannot write %d bytes to %s: %s",
                    rows.nbytes,
                    self._folder,
                    error,
                )

    def _make_room(self) -> None:
        files = []
        for path in self._root.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):  # another server has deleted it
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._limit:
                break
            path.unlink(missing_ok=True)
            total -= size


def _read(path: Path, limit: int) -> bytes:
    """A file's bytes; none of one that is no plain file or larger than all may be together.

    Raises OSError, also for a link: nothing here makes any.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        whole = stat.S_ISREG(status.st_mode) and status.st_size <= limit
        return file.read(status.st_size) if whole else b""


def _write(path: Path, header: bytes, rows: Rows) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(header)
            file.write(rows.data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)  # on a full disk it would take what is left
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _encode(rows: Rows, bundle: bytes, key: bytes) -> bytes:
    """The header of a block's file."""
    return _HEADER.pack(_MAGIC, bundle, key, rows.nbytes, _checksum(bundle, key, rows.data))


def _decode(data: bytes, bundle: bytes, key: bytes) -> Rows | None:
    """The rows in a file, or None if it is not the whole file of this bundle and key."""
    if len(data) < _HEADER.size:
        return None
    rows = memoryview(data)[_HEADER.size :]
    expected = (_MAGIC, bundle, key, len(rows), _checksum(bundle, key, rows))
    return np.frombuffer(rows, np.uint8) if _HEADER.unpack_from(data) == expected else None


def _checksum(bundle: bytes, key: bytes, rows: memoryview) -> bytes:
    digest = hashlib.sha256(bundle + key)
    digest.update(rows)
    return digest.digest()
