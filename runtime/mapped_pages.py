"""The pages of mapped weights: return them to the system, or replace them by memory."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

_MAP_FIXED = 0x10  # of mmap(2), on every architecture of Linux that Hearth has targets for
_FAILED = ctypes.c_void_p(-1).value


class MappedFile(NamedTuple):
    """Where a file is mapped in memory: the address of its first page, and its bytes.

    It must stay mapped while the functions of this module run.
    """

    path: Path
    address: int
    size: int

    @staticmethod
    def at(memory: memoryview, path: Path) -> MappedFile:
        """The mapping that `memory` shows, from its first byte to the end of the file."""
        pages = np.frombuffer(memory, np.uint8)
        return MappedFile(path, pages.ctypes.data, pages.nbytes)


def release_pages(mapped: MappedFile) -> None:
    """Release the pages of a read-only mapping. A page that is read later is mapped again."""
    _advise(mapped, "MADV_DONTNEED")


def prefer_huge_pages(mapped: MappedFile) -> None:
    """Ask for huge pages in a mapping.

    Call this before the pages are read. Linux then reads the file into huge pages of its cache,
    where the file system has them (XFS, and ext4 since Linux 6.16); pages that are in the cache
    stay as they are.
    """
    _advise(mapped, "MADV_HUGEPAGE")


def move_to_memory(mapped: MappedFile) -> None:
    """Replace a read-only mapping by a copy.

    The copy has huge pages if Linux has them, and the system may drop the cached pages of the
    file. Nothing may read the mapping meanwhile. Raises OSError; the mapping is then unusable.
    """
    libc = _libc()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if libc.mmap(mapped.address, mapped.size, access, flags, -1, 0) == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    prefer_huge_pages(mapped)
    memory = memoryview((ctypes.c_char * mapped.size).from_address(mapped.address)).cast("B")
    with mapped.path.open("rb", buffering=0) as source:
        while memory and (count := source.readinto(memory)):
            memory = memory[count:]
        if memory:
            raise OSError(errno.EIO, f"{mapped.path} became shorter while it was loaded")
        os.posix_fadvise(source.fileno(), 0, mapped.size, os.POSIX_FADV_DONTNEED)
    libc.mprotect(mapped.address, mapped.size, mmap.PROT_READ)


def _advise(mapped: MappedFile, advice: str) -> None:
    """Give Linux advice on the pages of a mapping, if it has this one."""
    if hasattr(mmap, advice):
        _libc().madvise(mapped.address, mapped.size, getattr(mmap, advice))


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = (pointer, size, number, number, number, ctypes.c_long)
    libc.mmap.restype = pointer
    libc.madvise.argtypes = libc.mprotect.argtypes = (pointer, size, number)
    return libc
