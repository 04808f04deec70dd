"""Digests of files that are computed while others write or read them.

A file that exceeds the memory would be read from the storage once more to be hashed later.
"""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hearthd.bundle import FileRecord
from hearthd.runtime.system.operating_system import drop_cached

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

_CHUNK = 4 << 20
# Bytes of a file that stay in the system's cache behind the bytes that are hashed.
_KEPT = 1 << 30


class FileDigests:
    """Hashes files, one after the other, in a thread. A context manager.

    It hashes the files, joined in order, up to a position that `advance` moves forward. The bytes
    before this position are final.
    """

    def __init__(self, paths: Sequence[Path], *, drops: bool = False) -> None:
        """With `drops`, the system need not keep in its cache what was hashed some time ago."""
        self._paths, self._drops = paths, drops
        self._position: float = 0
        self._ended = False
        self._moved = threading.Condition()
        self._pool = ThreadPoolExecutor(1, "digests")
        self._records = self._pool.submit(self._hash)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._moved:
            self._ended = True
            self._moved.notify()
        self._pool.shutdown()

    def advance(self, position: float) -> None:
        """Allow the bytes before a position to be hashed."""
        with self._moved:
            self._position = max(self._position, position)
            self._moved.notify()

    def records(self) -> tuple[FileRecord, ...]:
        """The records of all files, which are final; raises OSError."""
        self.advance(float("inf"))
        return self._records.result()

    def _hash(self) -> tuple[FileRecord, ...]:
        records: list[FileRecord] = []
        for path in self._paths:
            start = sum(record.bytes for record in records)
            if not self._wait(start + 1):  # the file exists then
                break
            records.append(self._record(path, start))
        return tuple(records)

    def _record(self, path: Path, start: int) -> FileRecord:
        digest, size = hashlib.sha256(), 0
        with path.open("rb", buffering=0) as file:
            while self._wait(start + size + _CHUNK) and (data := file.read(_CHUNK)):
                digest.update(data)
                before, size = size, size + len(data)
                if self._drops and before // _KEPT != size // _KEPT > 1:
                    drop_cached(file.fileno(), (size // _KEPT - 1) * _KEPT)
            size = os.fstat(file.fileno()).st_size
        return FileRecord(name=path.name, bytes=size, sha256=digest.hexdigest())

    def _wait(self, position: int) -> bool:
        """Wait until the bytes before a position may be hashed; False at the end of the block."""
        with self._moved:
            self._moved.wait_for(lambda: self._ended or self._position >= position)
            return not self._ended
