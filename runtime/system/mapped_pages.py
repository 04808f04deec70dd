"""The pages of mapped weights: return them to the system, or replace them by memory."""

from __future__ import annotations

import ctypes
import errno
import threading
from contextlib import contextmanager
from mmap import PAGESIZE
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hearthd.runtime.system.operating_system import (
    advise_pages,
    drop_cached,
    protect_pages,
    replace_by_memory,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_PAGES = Path("/proc/self/statm")
_INTERVAL = 0.02  # seconds
_PIECE = 64 << 20  # bytes that are copied before they leave the cache


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

    def without(self, parts: Iterable[MappedFile]) -> tuple[MappedFile, ...]:
        """The pages outside some parts of the mapping, which do not overlap."""
        outside, start, end = [], self.address, self.address + self.size
        for part in (*sorted(parts, key=lambda part: part.address), MappedFile(self.path, end, 0)):
            if start < part.address:
                outside.append(MappedFile(self.path, start, part.address - start))
            start = part.address + part.size
        return tuple(outside)


def release_pages(mapped: MappedFile) -> None:
    """Release the pages of a read-only mapping. A page that is read later is mapped again."""
    advise_pages(mapped.address, mapped.size, "MADV_DONTNEED")


@contextmanager
def few_mapped_pages(parts: Sequence[MappedFile], limit: int) -> Iterator[None]:
    """Release pages of a mapping whenever the process has mapped more than `limit` bytes.

    Pages of all files count. They stay in the system's cache, which gives them up when memory is
    short. Only Linux counts them; elsewhere this does nothing.
    """
    ended = threading.Event()

    def watch() -> None:
        while _PAGES.exists() and not ended.wait(_INTERVAL):
            if _mapped_bytes() > limit:
                for part in parts:
                    release_pages(part)

    watching = threading.Thread(target=watch, name="mapped pages", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def _mapped_bytes() -> int:
    """The bytes of files, and of memory shared with other processes, that this process has."""
    return int(_PAGES.read_text("ascii").split()[2]) * PAGESIZE


def prefer_huge_pages(mapped: MappedFile) -> None:
    """Ask for huge pages in a mapping.

    Call this before the pages are read. Linux then reads the file into huge pages of its cache,
    where the file system has them (XFS, and ext4 since Linux 6.16); pages that are in the cache
    stay as they are.
    """
    advise_pages(mapped.address, mapped.size, "MADV_HUGEPAGE")


def move_to_memory(mapped: MappedFile) -> None:
    """Replace a read-only mapping by a copy; on Windows, which cannot do this, it stays.

    The copy has huge pages if Linux has them. The system may drop each piece of the file from its
    cache once it is copied: with the whole file in memory twice, none of it stays in one piece for
    huge pages. Nothing may read the mapping meanwhile. Raises OSError; the mapping is then
    unusable.
    """
    if not replace_by_memory(mapped.address, mapped.size):
        return
    prefer_huge_pages(mapped)
    memory = memoryview((ctypes.c_char * mapped.size).from_address(mapped.address)).cast("B")
    with mapped.path.open("rb", buffering=0) as source:
        while memory and (count := source.readinto(memory[:_PIECE])):
            memory = memory[count:]
            drop_cached(source.fileno(), mapped.size - len(memory))
        if memory:
            raise OSError(errno.EIO, f"{mapped.path} became shorter while it was loaded")
    protect_pages(mapped.address, mapped.size)
