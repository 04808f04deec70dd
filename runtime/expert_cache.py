"""Slots in memory for experts that are larger than memory: see kernels/product/expert_cache.h.

Kernels find a slot for each expert that they multiply, and have Linux read those that have none.
A page of each array has a mark in the mapping of the file, by which a kernel finds its slots.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import weakref
from dataclasses import dataclass
from mmap import PAGESIZE
from typing import TYPE_CHECKING

from hearthd.runtime.system.mapped_pages import MappedFile
from hearthd.runtime.system.operating_system import c_function, new_pages, replace_by_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from mmap import mmap
    from pathlib import Path

# As in expert_cache.h.
_FILE_PAGE, _MARK_ALIGN, _CACHE_BYTES = 4096, 1 << 16, 1 << 16
_MAX_ARRAYS, _MAX_EXPERTS = 7, 1024
_MARKS = (0x9F1C7A5BE3D24086, 0x5AD0B46E8127FC93)

# The most reads that have not ended, or whose end no kernel has seen.
_MAX_READS = 1024
# The numbers of io_setup and io_destroy.
_CALLS = {"x86_64": (206, 207), "aarch64": (0, 1)}


class CannotCache(Exception):
    """The system has no asynchronous reads; the message says why."""


@dataclass(frozen=True, kw_only=True)
class ExpertArray:
    """An array of the matrices of experts in a file, which begins at `offset`, in bytes.

    `matrix` is the name of the matrix, and `experts` their number.
    """

    matrix: str
    offset: int
    size: int
    experts: int

    @property
    def bytes(self) -> int:
        """The bytes of an expert."""
        return self.size // self.experts

    @property
    def stride(self) -> int:
        """The bytes of a slot: whole pages of the file that an expert is in."""
        before = self.offset % _FILE_PAGE if self.bytes % _FILE_PAGE == 0 else _FILE_PAGE - 1
        return _rounded_up(before + self.bytes, _FILE_PAGE)

    @property
    def is_small(self) -> bool:
        """Whether it stays mapped: there may be no room for a mark."""
        return self.size < 2 * _MARK_ALIGN


class _CachedArray(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64) for name in ("mapped", "slots", "offset", "bytes", "stride")
    ]


class _Cache(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("next", "context", "file", "arrays", "slots")),
        ("array", _CachedArray * _MAX_ARRAYS),
    ]


class ExpertCaches:
    """The slots of all experts of a program.

    slots     the number of slots of each matrix
    memory    the slots, by array
    replaced  the pages of the mapping that are not the file's
    """

    def __init__(self, mapped: MappedFile, arrays: Iterable[ExpertArray], memory: int) -> None:
        """Slots in about `memory` bytes, and at least one for each matrix.

        Raises CannotCache, and OSError if there is no memory.
        """
        matrices: dict[str, list[ExpertArray]] = {}
        for array in sorted(arrays, key=lambda array: array.offset):
            if not array.is_small:
                matrices.setdefault(array.matrix, []).append(array)
        strides = sum(array.stride for parts in matrices.values() for array in parts)
        experts = max((array.experts for parts in matrices.values() for array in parts), default=0)
        if experts > _MAX_EXPERTS:
            raise CannotCache(f"{experts} experts are more than {_MAX_EXPERTS}")
        self.slots = max(1, min(experts, memory // max(1, strides)))
        self.memory: list[mmap] = []
        self.replaced: list[MappedFile] = []
        if not matrices:
            return
        context, file = _new_context(), open_direct(mapped.path)
        self._end = weakref.finalize(self, _end, context, file)
        self._caches = new_pages(_CACHE_BYTES * len(matrices))
        start = _address(self._caches)
        addresses = {name: start + i * _CACHE_BYTES for i, name in enumerate(matrices)}
        following = _rings(tuple(matrices))
        for name, parts in matrices.items():
            cache = _Cache.from_address(addresses[name])
            cache.next, cache.context, cache.file = addresses[following[name]], context, file
            cache.arrays, cache.slots = len(parts), self.slots
            for i, array in enumerate(parts):
                cache.array[i] = self._with_slots(mapped, array, addresses[name])

    def _with_slots(self, mapped: MappedFile, array: ExpertArray, cache: int) -> _CachedArray:
        """Mark an array, and allocate its slots."""
        start = mapped.address + array.offset
        mark = MappedFile(mapped.path, _rounded_up(start, _MARK_ALIGN), PAGESIZE)
        replace_by_memory(mark.address, mark.size)
        struct.pack_into("<3Q", (ctypes.c_char * 24).from_address(mark.address), 0, *_MARKS, cache)
        self.replaced.append(mark)
        self.memory.append(new_pages(self.slots * array.stride, huge=True))
        slots = _address(self.memory[-1])
        return _CachedArray(start, slots, array.offset, array.bytes, array.stride)


def _address(pages: mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(pages))


def _rings(matrices: Sequence[str]) -> dict[str, str]:
    """By matrix, the next one of the same layer; after the last one comes the first."""
    layers: dict[str, list[str]] = {}
    for name in matrices:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    return {
        name: layer[(i + 1) % len(layer)]
        for layer in layers.values()
        for i, name in enumerate(layer)
    }


def _new_context() -> int:
    """A context of asynchronous reads; raises CannotCache."""
    call, numbers = c_function("syscall"), _CALLS.get(platform.machine())
    context = ctypes.c_ulong(0)
    if numbers is None:
        raise CannotCache(f"{platform.machine()} is not a known machine")
    if call(numbers[0], _MAX_READS, ctypes.byref(context)) != 0:
        number = ctypes.get_errno()
        raise CannotCache(f"io_setup failed: {errno.errorcode.get(number)}, {os.strerror(number)}")
    return context.value


def open_direct(path: Path) -> int:
    """A descriptor for reading a file past the system's cache, if the file system can do so.

    Some file systems refuse that when the file is opened, others when it is read. Raises OSError.
    """
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
        try:
            with new_pages(_FILE_PAGE) as page:
                os.preadv(file, [page], 0)
        except OSError:
            os.close(file)
            raise
        return file
    return os.open(path, os.O_RDONLY)


def _end(context: int, file: int) -> None:
    """Wait for reads, and close the context and the file."""
    c_function("syscall")(_CALLS[platform.machine()][1], ctypes.c_ulong(context))
    os.close(file)


def _rounded_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
