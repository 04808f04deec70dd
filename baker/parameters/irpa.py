"""IRPA, IREE's parameter archive: a streaming writer and a mapping reader.

IREE's own writer wants every array in memory at once. This one is told the names and sizes first
and is then fed in blocks; the file is byte for byte what IREE's writer makes. Little-endian:

    header    88 bytes: magic, version, sizes, then (offset, length) of the three segments
    entries   one record of 76 bytes per entry, each at a multiple of 16: where name and data lie
    names     UTF-8, one after the other
    storage   each entry's data at a multiple of 64, so that the runtime maps it without a copy

The file ends at a multiple of the page size. Entries are raw bytes: no dtype, no shape.
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
     +- BadArchive          not an archive, truncated, corrupt, or with something not read here
     +- UnknownEntry        a write to a name that was not declared
     +- WrongLength         more bytes than declared, or fewer when the archive is closed
    """


class BadArchive(ArchiveError):
    """The file is not an archive, is truncated or corrupt, or holds what is not read here."""


class UnknownEntry(ArchiveError):
    """A write to a name that was not declared."""


class WrongLength(ArchiveError):
    """An entry got more bytes than declared, or fewer by the time of closing."""


class ArchiveWriter:
    """Writes an archive of `entries` (name -> length in bytes), in any order, in any blocks.

    A context manager. Leaving it without an exception raises WrongLength when an entry is not
    filled; the file is the caller's to delete then, and after any exception.
    """

    def __init__(self, path: Path, entries: Mapping[str, int]) -> None:
        self._path = path
        head, offsets, size = _layout(entries)
        # Name -> where the next byte goes, and where the entry ends.
        self._next = offsets
        self._end = {name: offsets[name] + length for name, length in entries.items()}
        # Not buffered: blocks are large, and what is written late fails late.
        self._file: IO[bytes] = path.open("wb", buffering=0)
        try:
            self._put(0, head)
            with self._naming():
                self._file.truncate(size)
        except OSError:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if kind is None:
            self._require_filled()

    def write(self, name: str, data: NDArray[Any]) -> None:
        """Append an array's bytes, row-major, of any dtype and shape, to an entry.

        Raises UnknownEntry or WrongLength (and then writes nothing), or OSError.
        """
        if name not in self._next:
            raise UnknownEntry(f"{self._path}: {name!r} was not declared")
        start, end = self._next[name], self._end[name]
        if start + data.nbytes > end:
            raise WrongLength(
                f"{self._path}: {data.nbytes} more bytes for {name!r}, wanted {end - start} at most"
            )
        # A view as bytes, since bfloat16 arrays have no buffer protocol.
        self._put(start, np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        self._next[name] = start + data.nbytes

    def _put(self, position: int, data: bytes | memoryview) -> None:
        with self._naming():
            self._file.seek(position)
            while data:
                data = data[self._file.write(data) :]

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Name the file in an error, which the system calls do not."""
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
    """Map an archive: each entry's name and its bytes, uint8 (length,), read-only, not in memory.

    Raises BadArchive, or OSError when the file cannot be opened.
    """
    size = path.stat().st_size
    if size < _HEADER.size:
        raise BadArchive(f"{path} has {size} bytes, an archive has {_HEADER.size} at least")
    data = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    magic, major, minor, header, following, _, count, *segments = _HEADER.unpack(
        data[: _HEADER.size].tobytes()
    )
    if magic != MAGIC:
        raise BadArchive(f"{path} is not an archive: it begins with {magic!r}, wanted {MAGIC!r}")
    if (major, minor) != VERSION or header != _HEADER.size or following:
        raise BadArchive(f"{path} has version {major}.{minor} or a form that is not read here")
    entries, names, storage = (
        _slice(path, data, offset, length, "a segment")
        for offset, length in zip(segments[::2], segments[1::2], strict=True)
    )
    return _read_entries(path, count, entries, names, storage)


def _layout(entries: Mapping[str, int]) -> tuple[bytes, dict[str, int], int]:
    """Everything before the data, each entry's offset in the file, and the file's size."""
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
    found: dict[str, NDArray[np.uint8]] = {}
    position = named = 0
    for i in range(count):
        record = _slice(path, entries, position, _ENTRY.size, f"record {i}")
        size, kind, _, name_at, name_length, _, _, _, start, length = _ENTRY.unpack(
            record.tobytes()
        )
        if (size, kind) != (_ENTRY.size, _DATA):
            raise BadArchive(f"{path}: record {i} has type {kind}, only stored bytes are read")
        name = _name(path, _slice(path, names, name_at, name_length, f"the name of record {i}"))
        named += name_length
        if named > names.size:  # else a small file could hold a long name for each of many entries
            raise BadArchive(f"{path}: its names have {names.size} bytes, its entries name more")
        if name in found:
            raise BadArchive(f"{path} has the entry {name!r} twice")
        found[name] = _slice(path, storage, start, length, f"entry {name!r}")
        position = _align(position + size, _ENTRY_ALIGNMENT)
    return found


def _name(path: Path, raw: NDArray[np.uint8]) -> str:
    try:
        return raw.tobytes().decode()
    except UnicodeDecodeError as error:
        raise BadArchive(f"{path}: an entry's name is not UTF-8: {raw.tobytes()!r}") from error


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
