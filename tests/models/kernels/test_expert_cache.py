"""Kernels that read the matrices of experts from their file: the same bits, and few reads."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.compiler.kernel_objects import STREAMED_FLAG
from hearthd.models.dsl.ops import REGISTRY
from hearthd.models.dsl.types import DType, TensorType
from hearthd.runtime.expert_cache import ExpertArray, ExpertCaches
from hearthd.runtime.system.mapped_pages import MappedFile
from tests.models.kernels.kernel_library import build_library
from tests.models.kernels.test_routed_kernels import EXPERTS, inputs, matrices

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

STORED, KERNEL = "int4-g32-min", "routed_linear_int4_g32_min"
ROWS, COLUMNS = 16 * 64, 512  # 256 KiB of integers for each expert
_DEADLINE = 20.0  # seconds until the system has read them
GATE, UP = "layers.0.experts.gate", "layers.0.experts.up"


class ExpertFile:
    """A file with two matrices of a layer, mapped, with slots for some of their experts."""

    def __init__(self, path: Path, matrices: dict[str, tuple[Array, ...]], slots: int) -> None:
        self._path = path
        self._offsets: dict[str, list[int]] = {}
        contents = b"header"
        for name, arrays in matrices.items():
            self._offsets[name] = []
            for array in arrays:
                contents = contents.ljust(-(-len(contents) // 64) * 64, b"-")
                self._offsets[name].append(len(contents))
                contents += array.tobytes()
        path.write_bytes(contents)
        with path.open("rb") as file:
            os.fsync(file.fileno())
            self._pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.mapped = MappedFile.at(memoryview(self._pages), path)
        parts = [
            ExpertArray(matrix=name, offset=offset, size=array.nbytes, experts=EXPERTS)
            for name, arrays in matrices.items()
            for offset, array in zip(self._offsets[name], arrays, strict=True)
        ]
        self.caches = ExpertCaches(self.mapped, parts, slots * sum(part.stride for part in parts))
        self._matrices = matrices

    def matrix(self, name: str) -> tuple[Array, ...]:
        """The arrays of a matrix where they are mapped."""
        return tuple(
            np.ndarray(array.shape, array.dtype, self._pages, offset)
            for offset, array in zip(self._offsets[name], self._matrices[name], strict=True)
        )

    def has(self, contents: bytes) -> bool:
        """Whether a slot has these bytes.

        Before Python 3.11.5, mmap.find reads a byte beyond the pages (python/cpython#105235).
        """
        return any(contents in memory[:] for memory in self.caches.memory)

    def erase(self) -> None:
        """Overwrite all matrices with zeros: what is read later is different."""
        size = self._path.stat().st_size
        with self._path.open("r+b") as file:
            file.write(bytes(size))
            os.fsync(file.fileno())


def call(
    library: Path, x: Array, chosen: Array, stored: tuple[Array, ...], threads: int = 1
) -> Array:
    """The rows that the kernel computes, its workgroups in some threads."""
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
        tensors += [ctypes.c_void_p(array.__array_interface__["data"][0]), ctypes.c_size_t(0)]
    function = getattr(ctypes.CDLL(str(library)), f"hearth_{kernel.function}")

    def run(workgroup: int) -> None:
        sizes = [ctypes.c_size_t(size) for size in (workgroup, *kernel.sizes)]
        assert function(*tensors, *sizes) == 0

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(kernel.workgroups)))
    return out


def chosen_by_one_row(experts: Sequence[int]) -> tuple[Array, Array]:
    return inputs(1, COLUMNS)[0], np.array(experts, np.int32)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The kernel as it is, and as it is compiled for experts that are larger than memory."""
    folder = tmp_path_factory.mktemp("kernels")
    plain, streamed = folder / "plain.so", folder / "streamed.so"
    build_library("x86_64", "x86_64_v3", plain, [KERNEL])
    build_library("x86_64", "x86_64_v3", streamed, [KERNEL], "-shared", STREAMED_FLAG)
    return plain, streamed


@pytest.fixture(scope="module")
def stored() -> dict[str, tuple[Array, ...]]:
    gate = matrices(STORED, ROWS, COLUMNS)[1]
    return {GATE: gate, UP: tuple(array[::-1].copy() for array in gate)}


@pytest.mark.parametrize("slots", [1, 2, EXPERTS])
def test_experts_from_a_file_have_the_bits_of_others(
    libraries: tuple[Path, Path], stored: dict[str, tuple[Array, ...]], tmp_path: Path, slots: int
) -> None:
    plain, streamed = libraries
    file = ExpertFile(tmp_path / "experts", stored, slots)
    assert file.caches.slots == slots
    for rows in (1, 90, 30):
        x, chosen = inputs(rows, COLUMNS)
        for name, matrix in stored.items():
            expected = call(plain, x, chosen, matrix)
            assert expected.any()
            assert np.array_equal(expected, call(streamed, x, chosen, file.matrix(name), 3))


def test_small_matrices_are_read_where_they_are(
    libraries: tuple[Path, Path], stored: dict[str, tuple[Array, ...]]
) -> None:
    x, chosen = inputs(30, COLUMNS)
    plain, streamed = (call(library, x, chosen, stored[GATE]) for library in libraries)
    assert plain.any()
    assert np.array_equal(plain, streamed)


def test_the_experts_that_were_used_last_stay_in_memory(
    libraries: tuple[Path, Path], stored: dict[str, tuple[Array, ...]], tmp_path: Path
) -> None:
    plain, streamed = libraries
    file = ExpertFile(tmp_path / "experts", {GATE: stored[GATE]}, 2)
    for expert in (0, 1, 0, 2):
        call(streamed, *chosen_by_one_row((expert,)), file.matrix(GATE))
    file.erase()
    for experts, stays in (((0, 2), True), ((1,), False), ((2,), True), ((0,), False)):
        row = chosen_by_one_row(experts)
        expected = call(plain, *row, stored[GATE])
        assert np.array_equal(expected, call(streamed, *row, file.matrix(GATE))) == stays


def test_a_call_has_its_experts_of_the_other_matrix_of_the_layer_read(
    libraries: tuple[Path, Path], stored: dict[str, tuple[Array, ...]], tmp_path: Path
) -> None:
    file = ExpertFile(tmp_path / "experts", stored, 2)
    call(libraries[1], *chosen_by_one_row((0, 3)), file.matrix(GATE))
    integers = stored[UP][0]
    experts = [part.tobytes() for part in integers.reshape(EXPERTS, -1)]
    deadline = time.monotonic() + _DEADLINE
    while not all(file.has(experts[expert]) for expert in (0, 3)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not any(file.has(experts[expert]) for expert in (1, 2, 4))


def read_shorter_file(library: Path, stored: dict[str, tuple[Array, ...]], path: Path) -> None:
    file = ExpertFile(path, stored, 2)
    os.truncate(path, 4096)
    call(library, *chosen_by_one_row((3,)), file.matrix(GATE))


def test_a_file_that_became_shorter_ends_the_process(
    libraries: tuple[Path, Path], stored: dict[str, tuple[Array, ...]], tmp_path: Path
) -> None:
    arguments = (libraries[1], {GATE: stored[GATE]}, tmp_path / "experts")
    child = multiprocessing.get_context("spawn").Process(target=read_shorter_file, args=arguments)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGILL
