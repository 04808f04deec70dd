"""IRPA, IREE's parameter archive: a streaming writer, and a reader that maps the file.

IREE's writer needs every array in memory at once. This writer gets names and sizes first and then
the data in blocks; the file is byte for byte equal to IREE's. Little-endian:

    header    88 bytes: magic, version, sizes, then (offset, length) of the three segments
    entries   one record of 76 bytes per entry, aligned to 16: the offsets of its name and data
    names     UTF-8, without separators
    storage   the data of each entry, aligned to 64 so that the runtime maps it without a copy

The size of the file is a multiple of the page size. Entries are raw bytes without dtype or shape.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

MAGIC = b"IRPA"
VERSION = (0, 0)
ALIGNMENT = 64
_ENTRY_ALIGNMENT = 16
_PAGE = 4096
# magic, version, header size, next header, flags, entry count, (offset, length) x 3 segments
_HEADER = struct.Struct("<4sHHQQQ" + "Q" + "QQ" * 3)
# record size, type, flags, name (offset, length), metadata (offset, length), alignment, data
_ENTRY = struct.Struct("<QIQ" + "QQ" + "QQ" + "Q" + "QQ")
_DATA = 2  # the entry type of stored bytes


class ArchiveError(Exception):
    """An archive cannot be written or read.

    ArchiveError
     +- BadArchive          not an archive, truncated, corrupt or unsupported
     +- UnknownEntry        a write to an undeclared name
     +- WrongLength         more bytes than declared, or fewer when the archive is closed
    """


class BadArchive(ArchiveError):
    """The file is not an archive, is truncated, corrupt or has an unsupported feature."""


class UnknownEntry(ArchiveError):
    """A write to an undeclared name."""


class WrongLength(ArchiveError):
    """An entry has more bytes than declared, or fewer when the archive is closed."""


class ArchiveWriter:
    """Writes an archive of `entries` (name -> length in bytes), in any order, in any blocks.

    A context manager. Leaving it without an exception raises WrongLength if an entry is incomplete.
    After any exception, the caller deletes the file.
    """

    def __init__(self, path: Path, entries: Mapping[str, int]) -> None:
        self._path = path
        head, offsets, self._size = _layout(entries)
        # Name -> the offset of the next byte, and the end of the entry.
        self._next = offsets
        self._end = {name: offsets[name] + length for name, length in entries.items()}
        self._incomplete = list(entries)[::-1]  # the first one last; complete ones may be left
        # Unbuffered: blocks are large, and errors of late writes would be late.
        self._file: IO[bytes] = path.open("wb", buffering=0)
        try:
            self._put(0, head)
            with self._naming():
                self._file.truncate(self._size)
        except OSError:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if error_type is None:
            self._require_filled()

    def write(self, name: str, data: NDArray[Any]) -> None:
        """Append an array's bytes, row-major, of any dtype and shape, to an entry.

        Raises UnknownEntry or WrongLength (and then writes nothing), or OSError.
        """
        if name not in self._next:
            raise UnknownEntry(f"{self._path}: {name!r} is not declared")
        start, end = self._next[name], self._end[name]
        if start + data.nbytes > end:
            raise WrongLength(
                f"{self._path}: {data.nbytes} more bytes for {name!r}, at most {end - start} fit"
            )
        # A view as bytes, since bfloat16 arrays have no buffer protocol.
        self._put(start, np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        self._next[name] = start + data.nbytes

    @property
    def complete(self) -> int:
        """The bytes at the start of the file that no later write changes."""
        while self._incomplete:
            first = self._incomplete[-1]
            if self._next[first] < self._end[first]:
                return self._next[first]
            self._incomplete.pop()
        return self._size

    def _put(self, position: int, data: bytes | memoryview) -> None:
        with self._naming():
            self._file.seek(position)
            while data:
                data = data[self._file.write(data) :]

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Add the name of the file to errors of system calls."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def _require_filled(self) -> None:
        for name, end in self._end.items():
            if self._next[name] != end:
                raise WrongLength(
                    f"{self._path}: {end - self._next[name]} bytes missing of {name!r}"
                )


def open_archive(path: Path) -> dict[str, NDArray[np.uint8]]:
    """Map an archive: the bytes of each entry by its name, uint8 (length,), read-only.

    Raises BadArchive, or OSError if the file cannot be opened.
    """
    size = path.stat().st_size
    if size < _HEADER.size:
        raise BadArchive(f"{path} has {size} bytes, an archive has at least {_HEADER.size}")
    data = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    magic, major, minor, header, following, _, count, *segments = _HEADER.unpack(
        data[: _HEADER.size].tobytes()
    )
    if magic != MAGIC:
        raise BadArchive(f"{path} is not an archive: it starts with {magic!r}, expected {MAGIC!r}")
    if (major, minor) != VERSION or header != _HEADER.size or following:
        raise BadArchive(f"{path} has version {major}.{minor} or an unsupported layout")
    entries, names, storage = (
        _slice(path, data, offset, length, "a segment")
        for offset, length in zip(segments[::2], segments[1::2], strict=True)
    )
    return _read_entries(path, count, entries, names, storage)


def _layout(entries: Mapping[str, int]) -> tuple[bytes, dict[str, int], int]:
    """The bytes before the data, the offset of each entry in the file, and the size of the file."""
    names = b"".join(name.encode() for name in entries)
    entries_at = _align(_HEADER.size, _ENTRY_ALIGNMENT)
    pitch = _align(_ENTRY.size, _ENTRY_ALIGNMENT)
    entries_length = max(0, pitch * len(entries) - (pitch - _ENTRY.size))
    names_at = entries_at + entries_length
    storage_at = _align(names_at + len(names), ALIGNMENT) if entries else names_at

    table, offsets = bytearray(entries_length), {}
    name_at = storage_end = 0
    for i, (name, length) in enumerate(entries.items()):
        start = _align(storage_end, ALIGNMENT)
        name_length = len(name.encode())
        _ENTRY.pack_into(
            table, i * pitch,
            _ENTRY.size, _DATA, 0, name_at, name_length, 0, 0, ALIGNMENT, start, length,
        )  # fmt: skip
        offsets[name] = storage_at + start
        name_at += name_length
        storage_end = start + length

    header = _HEADER.pack(
        MAGIC, *VERSION, _HEADER.size, 0, 0, len(entries),
        entries_at, entries_length, names_at, len(names), storage_at, storage_end,
    )  # fmt: skip
    head = header.ljust(entries_at, b"\0") + bytes(table) + names
    return head, offsets, _align(storage_at + storage_end, _PAGE)


def _read_entries(
    path: Path,
    count: int,
    entries: NDArray[np.uint8],
    names: NDArray[np.uint8],
    storage: NDArray[np.uint8],
) -> dict[str, NDArray[np.uint8]]:
    arrays: dict[str, NDArray[np.uint8]] = {}
    position = name_bytes = 0
    for i in range(count):
        record = _slice(path, entries, position, _ENTRY.size, f"record {i}")
        size, type_, _, name_at, name_length, _, _, _, start, length = _ENTRY.unpack(
            record.tobytes()
        )
        if (size, type_) != (_ENTRY.size, _DATA):
            raise BadArchive(f"{path}: record {i} has the unsupported type {type_}")
        name = _name(path, _slice(path, names, name_at, name_length, f"the name of record {i}"))
        name_bytes += name_length
        if name_bytes > names.size:  # else many records could share one long name
            raise BadArchive(
                f"{path}: the names of its records exceed the {names.size} bytes of all names"
            )
        if name in arrays:
            raise BadArchive(f"{path} has the entry {name!r} twice")
        arrays[name] = _slice(path, storage, start, length, f"entry {name!r}")
        position = _align(position + size, _ENTRY_ALIGNMENT)
    return arrays


def _name(path: Path, raw: NDArray[np.uint8]) -> str:
    try:
        return raw.tobytes().decode()
    except UnicodeDecodeError as error:
        raise BadArchive(f"{path}: the name of an entry is not UTF-8: {raw.tobytes()!r}") from error


def _slice(
    path: Path, data: NDArray[np.uint8], start: int, length: int, what: str
) -> NDArray[np.uint8]:
    if start + length > data.size:
        raise BadArchive(
            f"{path} is truncated or corrupt: {what} ends at byte {start + length} of {data.size}"
        )
    return data[start : start + length]


def _align(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
