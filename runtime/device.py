"""A compiled program with its weights on this machine's CPU: what every runtime stands on.

It knows model.vmfb, params.irpa, device buffers and how a function is called; what goes in and
comes out is the runtimes' business. There is no compiler here.

Weights are mapped, not read. Where the program lays some out anew, it reads them until its first
call ends; then the pages that this read are given back, so that they count no longer. What is still
looked up (a table of embeddings) comes back page by page.
"""

from __future__ import annotations

import atexit
import mmap
import time
from typing import TYPE_CHECKING, Any

import iree.runtime as rt
import numpy as np

from models.bundle import PARAMETER_SCOPE, PARAMETERS, VMFB, BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

ELEMENT_TYPES = {
    "i32": rt.HalElementType.SINT_32,
    "f32": rt.HalElementType.FLOAT_32,
    "bf16": rt.HalElementType.BFLOAT_16,
    "f16": rt.HalElementType.FLOAT_16,
}

# IREE's queue thread drops the last buffers some time after a runtime is gone, and takes the GIL
# for it. Should the interpreter be shutting down by then, the process aborts: it did at one exit
# of four (iree-base-runtime 3.13.0). So an exit waits until the queue has surely finished.
atexit.register(time.sleep, 0.3)


class CannotLoad(BundleError):
    """IREE refuses the program or the weights of a bundle."""


def start_threads(threads: int | None) -> rt.HalDevice:
    """IREE's threads, which a process has once: later calls give the same, whatever they ask.

    `threads` None takes one per physical core. IREE reserves 64 MB here, and touches them if malloc
    has so much that was freed: call it before anything large is freed.
    """
    if threads is not None:
        rt.flags.parse_flags(f"--task_topology_group_count={threads}")
    return rt.get_device("local-task")


class Device:
    """The program of a bundle, loaded."""

    def __init__(self, bundle: Path, *, threads: int | None, lays_out: bool = True) -> None:
        """Load model.vmfb and params.irpa; `threads` as in start_threads. Raises CannotLoad.

        `lays_out` is whether there are weights that the program lays out anew.
        """
        self._device = start_threads(threads)
        self._settled = not lays_out
        self._reserved: list[mmap.mmap] = []  # a buffer on them does not keep them
        try:
            self._load(bundle)
        except (RuntimeError, ValueError, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise CannotLoad(f"IREE cannot load {bundle}: {reason}: bake it again") from error

    def function(self, name: str) -> rt.VmFunction:
        """A function of the program; raises CannotLoad."""
        function = self._module.lookup_function(name)
        if function is None:
            raise CannotLoad(f"{VMFB} has no entry point {name!r}: bake the bundle again")
        return function

    def call(
        self, function: rt.VmFunction, arguments: Sequence[rt.HalBufferView], *, results: int
    ) -> rt.VmVariantList:
        """Run a function, which gives so many results."""
        given = rt.VmVariantList(len(arguments))
        for argument in arguments:
            given.push_ref(argument)
        found = rt.VmVariantList(results)
        self._context.invoke(function, given, found)
        if not self._settled:
            self._weights.madvise(mmap.MADV_DONTNEED)
            self._settled = True
        return found

    def upload(self, array: NDArray[Any], dtype: str) -> rt.HalBufferView:
        """A copy of an array on the device."""
        return self._device.allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT,
            device=self._device,
            buffer=array,
            element_type=ELEMENT_TYPES[dtype],
        )

    def zeros(self, shape: tuple[int, ...], dtype: str) -> rt.HalBufferView:
        """A new array of zeros."""
        element = ELEMENT_TYPES[dtype]
        size = int(np.prod(shape)) * rt.HalElementType.dense_byte_count(element)
        buffer = self._device.allocator.allocate_buffer(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT,
            allocation_size=size,
        )
        buffer.fill_zero(0, size)
        return rt.HalBufferView(buffer, shape, element)

    def reserve(self, shape: tuple[int, ...], dtype: str) -> rt.HalBufferView:
        """A new array of zeros that stays for as long as this.

        It has pages of its own, which take no memory until they are written.
        """
        size = int(np.prod(shape)) * rt.HalElementType.dense_byte_count(ELEMENT_TYPES[dtype])
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._reserved.append(pages)
        buffer = self._device.allocator.import_host_allocation(
            pages, memory_type=rt.MemoryType.DEVICE_LOCAL, allowed_usage=rt.BufferUsage.DEFAULT
        )
        return rt.HalBufferView(buffer, shape, ELEMENT_TYPES[dtype])

    def _load(self, bundle: Path) -> None:
        instance = rt.VmInstance()
        with (bundle / PARAMETERS).open("rb") as file:
            self._weights = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        parameters = rt.ParameterIndex()
        parameters.load_from_file_handle(
            rt.FileHandle.wrap_memory(self._weights, readable=True, writable=False), format="irpa"
        )
        provider = parameters.create_provider(scope=PARAMETER_SCOPE)
        # Its `mmap` opens the file for writing too, and a bundle may lie on a read-only disk.
        self._module = rt.VmModule.copy_buffer(instance, (bundle / VMFB).read_bytes())
        modules = [
            rt.create_hal_module(instance, self._device),
            rt.create_io_parameters_module(instance, provider),
            self._module,
        ]
        self._context = rt.VmContext(instance, modules)


def result(results: rt.VmVariantList, place: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A result of a call, f32 of a shape, copied."""
    view = results.get_as_object(place, rt.HalBufferView).map()
    return np.array(view.asarray(shape, np.dtype(np.float32)))


def result_rows(
    results: rt.VmVariantList, place: int, shape: tuple[int, int]
) -> Iterator[NDArray[np.float32]]:
    """The rows of such a result, each copied when it is asked for."""
    view = results.get_as_object(place, rt.HalBufferView).map()
    for row in view.asarray(shape, np.dtype(np.float32)):
        yield np.array(row)
