"""Kernels that have the system read the matrices of experts ahead: the same bits, from a file."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.compiler.kernel_objects import STREAMED_FLAG
from hearthd.models.dsl.ops import REGISTRY
from hearthd.models.dsl.types import DType, TensorType
from tests.models.kernels.kernel_library import build_library
from tests.models.kernels.test_routed_kernels import EXPERTS, inputs, matrices

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

STORED, KERNEL = "int4-g32-min", "routed_linear_int4_g32_min"
ROWS, COLUMNS = 16 * 64, 512  # 256 KiB of integers for each expert
CHOSEN = (0, 1, 3)
_DEADLINE = 20.0  # seconds until the system has read them


class Mapped:
    """An array in a file that the system reads page by page, unless it is asked to."""

    def __init__(self, path: Path, array: Array) -> None:
        path.write_bytes(array.tobytes())
        with path.open("r+b") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self._pages = mmap.mmap(file.fileno(), 0)
        self._pages.madvise(mmap.MADV_RANDOM)
        self.array: Array = np.ndarray(array.shape, array.dtype, self._pages)

    def in_memory(self) -> Array:
        """Whether each page is in memory; reads nothing."""
        count = -(-self.array.nbytes // mmap.PAGESIZE)
        pages = (ctypes.c_ubyte * count)()
        address = ctypes.c_void_p(self.array.ctypes.data)
        assert ctypes.CDLL(None).mincore(address, ctypes.c_size_t(self.array.nbytes), pages) == 0
        return np.array(pages, np.uint8) & 1 > 0


def call(library: Path, x: Array, chosen: Array, stored: tuple[Array, ...], count: int) -> Array:
    """The rows that the first `count` workgroups of the kernel compute, or all for 0."""
    out = np.zeros((len(chosen), ROWS), np.float32)
    arrays = (x, chosen, *stored)
    kernel: Any = REGISTRY["routed_linear_quantized"].lower(
        tuple(TensorType(array.shape, DType.of(array.dtype)) for array in arrays),
        TensorType(out.shape, DType.F32),
        {"matrix_format": STORED, "experts": EXPERTS},
    )
    assert kernel.workgroups > 4
    tensors: list[Any] = []
    for array in (*arrays, out):
        tensors += [array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(0)]
    function = getattr(ctypes.CDLL(str(library)), f"hearth_{kernel.function}")
    for workgroup in range(count or kernel.workgroups):
        sizes = [ctypes.c_size_t(size) for size in (workgroup, *kernel.sizes)]
        assert function(*tensors, *sizes) == 0
    return out


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The kernel as it is, and as it is compiled for experts that are larger than memory."""
    folder = tmp_path_factory.mktemp("kernels")
    plain, streamed = folder / "plain.so", folder / "streamed.so"
    build_library("x86_64", "x86_64_v3", plain, [KERNEL])
    build_library("x86_64", "x86_64_v3", streamed, [KERNEL], "-shared", STREAMED_FLAG)
    return plain, streamed


@pytest.mark.nightly
def test_reading_ahead_changes_no_bit(libraries: tuple[Path, Path]) -> None:
    stored = matrices(STORED, ROWS, COLUMNS)[1]
    for rows in (1, 30, 90):
        x, chosen = inputs(rows, COLUMNS)
        plain, streamed = (call(library, x, chosen, stored, 0) for library in libraries)
        assert plain.any()
        assert np.array_equal(plain, streamed)


def test_the_first_two_workgroups_have_all_experts_read(
    libraries: tuple[Path, Path], tmp_path: Path
) -> None:
    stored = matrices(STORED, ROWS, COLUMNS)[1]
    x, chosen = inputs(1, COLUMNS)[0], np.array(CHOSEN, np.int32)
    for streams, library in enumerate(libraries):
        files = [Mapped(tmp_path / f"{streams}-{i}", array) for i, array in enumerate(stored)]
        if any(file.in_memory().any() for file in files):
            pytest.skip("this file system keeps its files in memory")
        call(library, x, chosen, tuple(file.array for file in files), 2)
        deadline = time.monotonic() + _DEADLINE
        while streams and not all(all_read(file) for file in files):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        pages = files[0].in_memory().reshape(EXPERTS, -1).mean(axis=1)
        for expert in range(EXPERTS):
            # The first page of a chosen expert can be the last one of its neighbor.
            if expert not in CHOSEN or not streams:
                assert pages[expert] < 0.5


def all_read(file: Mapped) -> bool:
    """Whether all whole pages of the chosen experts are in memory."""
    pages, size = file.in_memory(), file.array.nbytes // EXPERTS
    return all(
        pages[-(-expert * size // mmap.PAGESIZE) : (expert + 1) * size // mmap.PAGESIZE].all()
        for expert in CHOSEN
    )
