"""The pages of mapped files: return them to the system, or replace them by memory."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAPS = Path("/proc/self/maps")
_MAP_FIXED = 0x10  # of mmap(2), on every architecture of Linux that Hearth has targets for
_FAILED = ctypes.c_void_p(-1).value


class _Mapping(NamedTuple):
    """Where a part of a file is mapped: the first address, bytes, and the offset in the file."""

    start: int
    size: int
    offset: int


def release_pages(file: Path) -> None:
    """Release the pages of all read-only mappings in this process of a file, a resolved path.

    A page that is read later is mapped again. Without /proc/self/maps (Linux) this does nothing.
    """
    for mapping in _mappings(file):
        _libc().madvise(mapping.start, mapping.size, mmap.MADV_DONTNEED)


def prefer_huge_pages(file: Path) -> None:
    """Ask for huge pages in all read-only mappings in this process of a file, a resolved path.

    Call this before the pages are read. Linux then reads the file into huge pages of its cache,
    where the file system has them (XFS, and ext4 since Linux 6.16); pages that are in the cache
    stay as they are. Without /proc/self/maps (Linux) this does nothing.
    """
    for mapping in _mappings(file):
        _libc().madvise(mapping.start, mapping.size, getattr(mmap, "MADV_HUGEPAGE", 0))


def move_to_memory(file: Path) -> None:
    """Replace all read-only mappings in this process of a file, a resolved path, by copies.

    The copies have huge pages if Linux has them, and the system may drop the cached pages of the
    file. Nothing may read the mappings meanwhile. Raises OSError; the mappings are then unusable.
    Without /proc/self/maps (Linux) this does nothing.
    """
    for mapping in _mappings(file):
        _replace(mapping, file)


def _replace(mapping: _Mapping, file: Path) -> None:
    libc = _libc()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if libc.mmap(mapping.start, mapping.size, access, flags, -1, 0) == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    libc.madvise(mapping.start, mapping.size, getattr(mmap, "MADV_HUGEPAGE", 0))
    memory = memoryview((ctypes.c_char * mapping.size).from_address(mapping.start)).cast("B")
    with file.open("rb", buffering=0) as source:
        source.seek(mapping.offset)
        while memory and (count := source.readinto(memory)):
            memory = memory[count:]
        if len(memory) >= mmap.PAGESIZE:  # the last page may go on behind the end of the file
            raise OSError(errno.EIO, f"{file} became shorter while it was loaded")
        os.posix_fadvise(source.fileno(), mapping.offset, mapping.size, os.POSIX_FADV_DONTNEED)
    libc.mprotect(mapping.start, mapping.size, mmap.PROT_READ)


def _mappings(file: Path) -> Iterator[_Mapping]:
    if not _MAPS.exists():
        return
    path = str(file).replace("\n", "\\012")  # as the kernel writes it
    for line in _MAPS.read_text(encoding="utf-8", errors="surrogateescape").split("\n"):
        # Addresses, permissions, offset, device, inode, path: see proc_pid_maps(5).
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or "w" in fields[1] or fields[5] != path:
            continue
        start, end = (int(address, 16) for address in fields[0].split("-"))
        yield _Mapping(start, end - start, int(fields[2], 16))


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = (pointer, size, number, number, number, ctypes.c_long)
    libc.mmap.restype = pointer
    libc.madvise.argtypes = libc.mprotect.argtypes = (pointer, size, number)
    return libc
