"""Blocks of the prefix cache on disk, so that they outlive the server.

    ROOT/<digest of the bundle>/<key of the block>.kv

A file is a header (magic, the bundle's digest, the key, the length of the rows, a sha256 of bundle,
key and rows) and the rows. A thread writes it under a temporary name, syncs and renames it, so a
crash at any time leaves complete files and perhaps a `.part`, which is never read and is deleted
when it is the oldest file. A damaged file is deleted with a warning.

All bundles under ROOT share one limit; the least recently used files, by their mtime, are deleted
first, and of a prompt the least important ones. Several servers may use the same ROOT, and other
files in ROOT stay. The files hold no tokens, but tokens can be computed from the rows: only the
user of the server can read them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import queue
import re
import stat
import struct
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from hearthd.runtime.system.operating_system import open_distrusted, sync
from hearthd.server.fault_isolation import contained

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hearthd.runtime.interface import Rows

log = logging.getLogger(__name__)

_MAGIC = b"hearthk1"
_HEADER = struct.Struct("<8s32s32sQ32s")
_FILE = re.compile(r"[0-9a-f]{64}/[0-9a-f]{64}(\.kv|\.\d+\.part)")  # below ROOT
# How many bytes of blocks may wait to be written. If the disk is slower than the model, some blocks
# are dropped and must be computed again later; the model never waits for the disk.
_MAX_WAITING = 2**26
# A penalty of a prompt, in seconds of a file's time.
_PROMPT_SECONDS = 60.0
_CLOCK_STEP = 10**9  # nanoseconds that corrections of the clock may take it back unnoticed
_WARNING_SECONDS = 60.0  # between two warnings that the disk cannot be written


class CannotStore(Exception):
    """The folder of the prefix cache cannot be used; the message says why."""


class PrefixStore:
    """The blocks of one bundle under `root`, which holds at most `limit_bytes` of files."""

    def __init__(self, root: Path, *, bundle: bytes, limit_bytes: int) -> None:
        """`bundle` is the digest of the manifest, 32 bytes. Raises CannotStore."""
        self._root = root
        self._bundle = bundle
        self._limit = limit_bytes
        self._folder = root / bundle.hex()
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(OSError):  # a file system without modes
                self._folder.chmod(0o700)  # an earlier version let others read it
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotStore(
                f"{root}: cannot store the prefix cache: {reason}; choose another --cache-dir"
            ) from error
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._next_warning = 0.0  # by time.monotonic
        self._thread = threading.Thread(target=self._write_all, name="prefix-store", daemon=True)
        self._thread.start()

    def load(self, key: bytes) -> Rows | None:
        """The block of a key, or None if there is no file or a damaged one, which is deleted."""
        path = self._path(key)
        try:
            rows = _decode(_read(path, self._limit), self._bundle, key)
            if rows is None:
                log.warning("%s: damaged file of the prefix cache; deleted", path)
                path.unlink()
            else:
                os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s: cannot read this file of the prefix cache: %s", path, error)
            return None
        return rows

    def save(self, key: bytes, rows: Rows, penalty: float = 0.0) -> None:
        """Write a block later, or drop it if too many bytes are waiting; returns at once.

        It is deleted like others that were used `penalty` prompts earlier.
        """
        with self._lock:
            if self._waiting_bytes and self._waiting_bytes + rows.nbytes > _MAX_WAITING:
                log.debug("the disk is slow: a block of the prefix cache was dropped")
                return
            self._waiting_bytes += rows.nbytes
        self._waiting.put(functools.partial(self._write_block, key, rows, penalty))

    def use(self, penalties: Mapping[bytes, float]) -> None:
        """Mark the files of blocks as used, with their penalties; returns at once."""
        self._waiting.put(functools.partial(self._mark_used, dict(penalties)))

    def close(self) -> None:
        """Write the waiting blocks and end the thread."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()

    def _path(self, key: bytes) -> Path:
        return self._folder / f"{key.hex()}.kv"

    # The methods below run in the store's thread.

    def _write_all(self) -> None:
        while (task := self._waiting.get()) is not None:
            with contained("writing a block of the prefix cache"):
                task()

    def _mark_used(self, penalties: Mapping[bytes, float]) -> None:
        for key, penalty in penalties.items():
            with contextlib.suppress(OSError):  # most often there is no such file
                _mark(self._path(key), penalty)

    def _write_block(self, key: bytes, rows: Rows, penalty: float) -> None:
        try:
            _write(self._path(key), _encode(rows, self._bundle, key), rows)
            _mark(self._path(key), penalty)
            self._make_room()
        except OSError as error:
            if time.monotonic() >= self._next_warning:  # each prompt has many blocks
                self._next_warning = time.monotonic() + _WARNING_SECONDS
                log.warning(
                    "%s: cannot write %d bytes of the prefix cache: %s",
                    self._folder,
                    rows.nbytes,
                    error,
                )
        finally:
            with self._lock:
                self._waiting_bytes -= rows.nbytes

    def _make_room(self) -> None:
        """Delete the files used least. One that has a later time is from before the clock was set.

        It would stay until the clock reaches its time, and each new file would be deleted.
        """
        files = []
        latest = time.time_ns() + _CLOCK_STEP
        for path in self._root.glob("*/*"):
            if not _FILE.fullmatch(path.relative_to(self._root).as_posix()):
                continue
            with contextlib.suppress(OSError):  # another server has deleted it
                status = path.lstat()
                used = status.st_mtime_ns if status.st_mtime_ns <= latest else 0
                files.append((used, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._limit:
                break
            with contextlib.suppress(OSError):  # it is another user's
                path.unlink(missing_ok=True)
                total -= size


def _mark(path: Path, penalty: float) -> None:
    """Mark a file as used `penalty` prompts ago. Raises OSError."""
    time_ = time.time_ns() - int(penalty * _PROMPT_SECONDS * 1e9)
    os.utime(path, ns=(time_, time_))


def _read(path: Path, limit: int) -> bytes:
    """A file's bytes; empty if it is not a regular file or larger than the limit of all files.

    Raises OSError, also for a link, which the store never creates.
    """
    with os.fdopen(open_distrusted(path), "rb") as file:
        status = os.fstat(file.fileno())
        readable = stat.S_ISREG(status.st_mode) and status.st_size <= limit
        return file.read(status.st_size) if readable else b""


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
        part.unlink(missing_ok=True)  # it would keep a full disk full
        raise
    sync(path.parent)


def _encode(rows: Rows, bundle: bytes, key: bytes) -> bytes:
    """The header of a block's file."""
    return _HEADER.pack(_MAGIC, bundle, key, rows.nbytes, _checksum(bundle, key, rows.data))


def _decode(data: bytes, bundle: bytes, key: bytes) -> Rows | None:
    """The rows in a file, or None if it is not the complete file of this bundle and key."""
    if len(data) < _HEADER.size:
        return None
    rows = memoryview(data)[_HEADER.size :]
    expected = (_MAGIC, bundle, key, len(rows), _checksum(bundle, key, rows))
    return np.frombuffer(rows, np.uint8) if _HEADER.unpack_from(data) == expected else None


def _checksum(bundle: bytes, key: bytes, rows: memoryview) -> bytes:
    digest = hashlib.sha256(bundle + key)
    digest.update(rows)
    return digest.digest()
