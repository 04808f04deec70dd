"""A compiled program and its weights, loaded on this machine's CPU.

It knows programs, params.irpa, device buffers and how a function is called. The runtimes know the
arguments and results. It does not import the compiler.

Weights are memory-mapped, or copied into memory. A program that rearranges some of them reads those
until its first call ends; then their mapped pages are returned to the system. Pages that are needed
later, such as rows of the embedding table, are mapped again one by one.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import iree.runtime as rt
import numpy as np

from hearthd.bundle import PARAMETER_SCOPE, PARAMETERS, VMFB, BundleError
from hearthd.runtime.expert_cache import CannotCache, ExpertArray, ExpertCaches
from hearthd.runtime.iree.loaded_program import ALIGNMENT, LoadedProgram, calls_iree
from hearthd.runtime.system.calling_thread import behind_workers
from hearthd.runtime.system.mapped_pages import (
    MappedFile,
    few_mapped_pages,
    move_to_memory,
    prefer_huge_pages,
    release_pages,
)
from hearthd.runtime.system.operating_system import IS_LINUX, new_pages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from mmap import mmap
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.runtime.streamed_experts import StreamedExperts

ELEMENT_TYPES = {
    "i8": rt.HalElementType.SINT_8,
    "i32": rt.HalElementType.SINT_32,
    "f32": rt.HalElementType.FLOAT_32,
    "bf16": rt.HalElementType.BFLOAT_16,
    "f16": rt.HalElementType.FLOAT_16,
}


class CannotLoad(BundleError):
    """IREE cannot load the program or the weights of a bundle."""


def start_threads(threads: int | None) -> rt.HalDevice:
    """Start IREE's threads, once per process: later calls return the same device.

    The number of threads; None for one per physical core. IREE allocates 64 MB here, and touches
    them if malloc reuses freed memory: call this before anything large is freed.
    """
    if threads is not None:
        rt.flags.parse_flags(f"--task_topology_group_count={threads}")
    return rt.get_device("local-task")


class Device:
    """The program of a bundle, loaded.

    expert_caches  the slots of experts that kernels read from the file, if they do
    """

    def __init__(
        self,
        bundle: Path,
        *,
        threads: int | None,
        program: str = VMFB,
        lays_out: bool = True,
        mapped: bool = True,
        experts: StreamedExperts | None = None,
        huge_pages: bool = True,
    ) -> None:
        """Load a program and params.irpa; `threads` as in start_threads. Raises CannotLoad.

        `program` is the name of its file. `lays_out` says whether it rearranges weights when it is
        loaded. Unless `mapped`, weights are copied into memory with huge pages, if Linux has them.
        `experts` are those that kernels read from the file. Without `huge_pages`, less around each
        missing page is read: for weights that are larger than memory.
        """
        if experts and not IS_LINUX:
            raise CannotLoad(
                f"{bundle}: its kernels have Linux read experts from their file, and this is "
                "another system; bake it with a --max-memory that all experts fit into"
            )
        if experts and not mapped:
            raise CannotLoad(
                f"{bundle}: --no-mmap copies the weights into memory, and this bundle was baked to "
                "read experts from their file; serve it without --no-mmap"
            )
        self._device = start_threads(threads)
        self._file = program
        self._settled = not lays_out
        self._reserved: list[mmap] = []  # IREE's buffers do not hold references to them
        try:
            self._program, self._mapped, self.expert_caches = _load(
                bundle,
                program,
                self._device,
                mapped=mapped,
                huge_pages=huge_pages,
                experts=experts,
            )
        except CannotCache as error:
            raise CannotLoad(
                f"{bundle}: Linux cannot read experts from their file here: {error}; bake it with "
                "a --max-memory that all experts fit into"
            ) from error
        except (IndexError, RuntimeError, ValueError, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise CannotLoad(f"{bundle}: IREE cannot load it: {reason}; bake it again") from error

    def function(self, name: str) -> rt.VmFunction:
        """The function of this name; raises CannotLoad."""
        function = self._program.function(name)
        if function is None:
            raise CannotLoad(f"{self._file}: missing entry point {name!r}; bake the bundle again")
        return function

    def call(
        self, function: rt.VmFunction, arguments: Sequence[rt.HalBufferView], *, results: int
    ) -> rt.VmVariantList:
        """Run a function that has about this number of results."""
        inputs = rt.VmVariantList(len(arguments))
        for argument in arguments:
            inputs.push_ref(argument)
        outputs = rt.VmVariantList(results)
        with behind_workers():
            self._program.call(function, inputs, outputs)
        for part in () if self._settled else self._mapped:
            release_pages(part)
        self._settled = True
        return outputs

    def few_mapped_pages(self, limit: int) -> AbstractContextManager[None]:
        """Keep at most about `limit` bytes of mapped files in this process, in the block."""
        return few_mapped_pages(self._mapped, limit) if self._mapped else nullcontext()

    def upload(self, array: NDArray[Any], dtype: str) -> rt.HalBufferView:
        """A copy of an array on the device."""
        with calls_iree():
            return self._device.allocator.allocate_buffer_copy(
                memory_type=rt.MemoryType.DEVICE_LOCAL,
                allowed_usage=rt.BufferUsage.DEFAULT,
                device=self._device,
                buffer=array,
                element_type=ELEMENT_TYPES[dtype],
            )

    def zeros(self, shape: tuple[int, ...], dtype: str) -> rt.HalBufferView:
        """A new array of zeros."""
        size = _bytes(shape, dtype)
        buffer = self._device.allocator.allocate_buffer(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT,
            allocation_size=size,
        )
        buffer.fill_zero(0, size)
        return rt.HalBufferView(buffer, shape, ELEMENT_TYPES[dtype])

    def reserve(self, shape: tuple[int, ...], dtype: str) -> rt.HalBufferView:
        """A new array of zeros that exists as long as this device.

        It has its own pages, which take no memory until they are written.
        """
        return self._view(self._pages(_bytes(shape, dtype)), shape, dtype)

    def reserve_together(
        self, types: Sequence[tuple[tuple[int, ...], str]]
    ) -> tuple[rt.HalBufferView, ...]:
        """As `reserve`, for arrays of some shapes and dtypes, in huge pages if Linux has them.

        Calls that read a little of each array then find it without a walk through page tables.
        """
        ends = list(accumulate(-(-_bytes(*type_) // ALIGNMENT) * ALIGNMENT for type_ in types))
        pages = self._pages(ends[-1], huge=True)
        view = memoryview(pages)
        starts = (0, *ends[:-1])
        return tuple(
            self._view(view[start : start + _bytes(*type_)], *type_)
            for start, type_ in zip(starts, types, strict=True)
        )

    def _pages(self, size: int, *, huge: bool = False) -> mmap:
        pages = new_pages(size, huge=huge)
        self._reserved.append(pages)
        return pages

    def _view(
        self, memory: mmap | memoryview, shape: tuple[int, ...], dtype: str
    ) -> rt.HalBufferView:
        buffer = self._device.allocator.import_host_allocation(
            memory, memory_type=rt.MemoryType.DEVICE_LOCAL, allowed_usage=rt.BufferUsage.DEFAULT
        )
        return rt.HalBufferView(buffer, shape, ELEMENT_TYPES[dtype])


def _load(
    bundle: Path,
    program: str,
    device: rt.HalDevice,
    *,
    mapped: bool,
    huge_pages: bool,
    experts: StreamedExperts | None,
) -> tuple[LoadedProgram, tuple[MappedFile, ...], ExpertCaches | None]:
    """The program, the weights that are mapped from their file, and the slots of experts."""
    instance = rt.VmInstance()
    parameters = rt.ParameterIndex()
    path = (bundle / PARAMETERS).resolve()
    # IREE maps the file. If Python mapped it, IREE's queue thread would unmap it some time
    # after the device is deleted, without the GIL, and end the process.
    parameters.load(str(path), format="irpa", mmap=True)
    weights = _mapping(parameters, path)
    caches = None
    if weights is not None and mapped:
        if huge_pages:  # a missing page is then read with 4 MiB around it
            prefer_huge_pages(weights)
        if experts:
            caches = ExpertCaches(weights, _arrays(parameters, experts), experts.memory)
    elif weights is not None:
        move_to_memory(weights)
    provider = parameters.create_provider(scope=PARAMETER_SCOPE)
    # IREE could map the code, but opens the file for writing: a bundle may be on a read-only disk.
    loaded = LoadedProgram(
        (bundle / program).read_bytes(),
        rt.create_hal_module(instance, device),
        rt.create_io_parameters_module(instance, provider),
        instance=instance,
    )
    if weights is None or not mapped:
        return loaded, (), None
    return loaded, weights.without(caches.replaced if caches else ()), caches


def _mapping(parameters: rt.ParameterIndex, path: Path) -> MappedFile | None:
    """Where IREE has mapped the file of these parameters; None without parameters in a file."""
    for _, entry in parameters.items():  # noqa: PERF102 - not a dict
        if entry.is_file:
            file, _ = entry.file_storage
            return MappedFile.at(file.host_allocation, path)
    return None


def _arrays(parameters: rt.ParameterIndex, experts: StreamedExperts) -> list[ExpertArray]:
    """Where the arrays of experts are in their file."""
    return [
        ExpertArray(
            matrix=name.rpartition(".")[0],
            offset=entry.file_storage[1],
            size=entry.length,
            experts=experts.arrays[name],
        )
        for name, entry in parameters.items()
        if name in experts.arrays
    ]


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    size: int = math.prod(shape) * rt.HalElementType.dense_byte_count(ELEMENT_TYPES[dtype])
    return size


def result(results: rt.VmVariantList, index: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A copy of one result of a call, f32 of this shape."""
    view = results.get_as_object(index, rt.HalBufferView).map()
    return np.array(view.asarray(shape, np.dtype(np.float32)))


def result_views(results: rt.VmVariantList) -> list[rt.HalBufferView]:
    """The results of a call as arguments of another one, without a copy."""
    return [results.get_as_object(index, rt.HalBufferView) for index in range(len(results))]


class _Logits:
    """The memory of a result, for NumPy: arrays of it keep the mapping, and so the buffer."""

    def __init__(self, mapped: rt.MappedMemory, shape: tuple[int, int]) -> None:
        self._mapped = mapped
        self.__array_interface__ = mapped.asarray(shape, np.dtype(np.float32)).__array_interface__


def logits_of(results: rt.VmVariantList, shape: tuple[int, int]) -> NDArray[np.float32]:
    """The first result of a call, f32 of this shape, without a copy.

    A call returns a new buffer, which is the caller's: nothing else reads or writes it.
    """
    mapped = results.get_as_object(0, rt.HalBufferView).map()
    return np.asarray(_Logits(mapped, shape))
