"""Chains of kernels as C functions, which several threads enter at the same time."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.compiler.kernel_objects import FLAGS, PACKAGE
from hearthd.models.dsl import fused, ops
from hearthd.models.dsl.fused.quantized_products import sample_matrix
from hearthd.models.dsl.matrix_format import INT8
from hearthd.models.dsl.mlir.chains.c_function import WORKGROUPS
from hearthd.models.dsl.mlir.chains.chain import STATE
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from tests.models.dsl.test_chains import attention, decode, dispatches
from tests.models.kernels.kernel_library import SOURCES, source_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.dsl.mlir.chains.chain import Address, Call, Chain

    Array = NDArray[Any]

THREADS = (1, 2, 5, WORKGROUPS)


class Library:
    """A chain and its kernels for this machine."""

    def __init__(self, chain: Chain, folder: Path, positions: int) -> None:
        source, library = folder / f"{chain.name}.c", folder / f"{chain.name}.so"
        source.write_text(chain.c_text, encoding="utf-8")
        files = [source, *(folder / f"{name}.c" for name in chain.functions)]
        for name, file in zip(chain.functions, files[1:], strict=True):
            file.write_text(source_text(name))
        flags = [flag for flag in FLAGS if flag != "-fvisibility=hidden"]
        command = [sys.executable, "-m", PACKAGE, "cc", "-mcpu=native", *flags, f"-I{SOURCES}"]
        subprocess.run([*command, "-shared", "-o", library, *files], check=True)
        self.positions = positions
        self.chain, self._library = chain, ctypes.CDLL(str(library))

    def separately(self, inputs: list[Array], results: Array) -> None:
        """Call its kernels one after the other."""
        for call in self.chain.calls:
            self._call(call, inputs, results)

    def _call(self, call: Call, inputs: list[Array], results: Array) -> None:
        def argument(address: Address) -> list[Any]:
            array = results if address.argument is None else inputs[address.argument]
            return [array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(address.offset)]

        kernel = call.kernel
        read = call.inputs[1:] if kernel.in_place else call.inputs
        pointers = [one for address in (*read, call.result) for one in argument(address)]
        sizes = [ctypes.c_size_t(size) for size in kernel.sizes]
        scalars = [ctypes.c_float(scalar) for scalar in kernel.scalars]
        function = getattr(self._library, f"hearth_{kernel.function}")
        for workgroup in range(kernel.workgroups):
            function(*pointers, ctypes.c_size_t(workgroup), *sizes, *scalars)

    def together(self, inputs: list[Array], results: Array, state: Array, threads: int) -> None:
        """Call the chain as IREE does: each workgroup once, in any of the threads."""
        arrays = [*(inputs[i] for i in self.chain.arguments), state, results]
        arguments = [
            one
            for array in arrays
            for one in (array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(0))
        ]
        function = getattr(self._library, f"hearth_{self.chain.name}")
        start = threading.Barrier(threads)

        def work(number: int) -> None:
            start.wait()
            for _ in range(number, WORKGROUPS, threads):
                function(*arguments)

        workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def long_product(x: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """A long call whose result a short one reads, which waits for nothing else."""
    product = fused.linear_quantized(x, weight, scale, matrix_format=INT8.name)
    return (fused.gated_silu(product, product),)


def long_product_graph() -> Graph:
    columns, rng = 1 << 16, np.random.default_rng(0)
    arrays = sample_matrix(rng, INT8, 16, columns)
    weight, scale = (TensorType(array.shape, DType.of(array.dtype)) for array in arrays)
    x = TensorType((1, columns), DType.F32)
    return trace("long_product", long_product, {"x": x, "weight": weight, "scale": scale})


def wide_product_graph() -> Graph:
    """A product of nine workgroups, of which few threads take two or four as one."""

    def product(x: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        wide = fused.linear_quantized(x, weight, scale, matrix_format=INT8.name)
        return (fused.gated_silu(wide, wide),)

    arrays = sample_matrix(np.random.default_rng(0), INT8, 16 * 9 * 64, 32)
    weight, scale = (TensorType(array.shape, DType.of(array.dtype)) for array in arrays)
    x = TensorType((3, 32), DType.F32)
    return trace("wide_product", product, {"x": x, "weight": weight, "scale": scale})


def many_rows() -> Graph:
    """Calls with a workgroup for each of 132 rows; a thread takes several at a time."""
    row, rows = TensorType((64,), DType.F32), TensorType((132, 64), DType.F32)

    def twice(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        sums = fused.add_norm(x, x, weight, eps=1e-6)
        first, second = (
            ops.reshape(
                ops.slice_(sums, bounds=((i, i + 1, 1), (0, 132, 1), (0, 64, 1))), shape=rows.shape
            )
            for i in range(2)
        )
        return (fused.add_norm(first, second, weight, eps=1e-6),)

    return trace("many_rows", twice, {"x": rows, "weight": row})


def ring_graph() -> Graph:
    """A ring whose row is read before another one of it is written."""

    def convolved(
        states: Tensor, start: Tensor, positions: Tensor, x: Tensor, weight: Tensor
    ) -> tuple[Tensor, ...]:
        before = fused.row_before(states, start, ring=3)
        inside: dict[str, Any] = {"rows": (0, 2), "columns": (0, 1024)}
        mixed = fused.causal_conv(before, x, weight, **inside)
        latest = fused.latest_inputs(states, positions, before, x, every=False, **inside)
        return latest, fused.gated_silu(mixed, mixed)

    types = {
        "states": TensorType((3, 2048), DType.F32),
        "start": TensorType((1,), DType.I32),
        "positions": TensorType((2,), DType.I32),
        "x": TensorType((2, 1024), DType.F32),
        "weight": TensorType((1024, 3), DType.F32),
    }
    return trace("ring", convolved, types)


GRAPHS: Mapping[str, Callable[[], Graph]] = {
    "gemma3": lambda: decode("gemma3", 2),
    "llama": lambda: decode("llama", 2),
    "long_product": long_product_graph,
    "wide_product": wide_product_graph,
    "attention": lambda: attention(1000, tokens=3),
    "many_rows": many_rows,
    "ring": ring_graph,
}
# Positions and rows are below it in a graph, else below 20.
MAX_POSITIONS = {"attention": 900}


@pytest.fixture(scope="module", params=GRAPHS)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The first chain of a graph; graphs of models decode two sequences."""
    dispatch, *_ = dispatches(GRAPHS[request.param]())
    positions = MAX_POSITIONS.get(request.param, 20)
    return Library(dispatch.chain, tmp_path_factory.mktemp("chain"), positions)


def random_inputs(chain: Chain, positions: int) -> list[Array]:
    """Rows of caches that exist, and any integers and floats."""
    rng = np.random.default_rng(7)
    arrays = []
    for one in chain.inputs:
        if one.dtype.numpy == np.int8:
            array = rng.integers(-127, 128, one.shape, dtype=np.int8)
        elif one.dtype.numpy == np.int32:
            array = rng.integers(positions // 2, positions, one.shape, dtype=np.int32)
        else:
            array = (rng.normal(size=one.shape) / 8).astype(one.dtype.numpy)
        arrays.append(array)
    return arrays


@pytest.mark.parametrize("threads", THREADS)
def test_any_number_of_threads_computes_what_the_kernels_compute(
    library: Library, threads: int
) -> None:
    chain, inputs = library.chain, random_inputs(library.chain, library.positions)
    expected = [array.copy() for array in inputs]
    results = np.zeros(chain.size, np.float32)
    library.separately(expected, results)
    assert np.isfinite(results).all()
    assert results.any()
    state = np.zeros(STATE.shape, np.int32)
    for _ in range(40):
        given = [array.copy() for array in inputs]
        again = np.full(chain.size, np.nan, np.float32)
        library.together(given, again, state, threads)
        for node in chain.calls:  # between results there may be nothing
            assert node.result.argument is not None or not np.isnan(again[node.result.offset])
        written = ~np.isnan(again)
        assert np.array_equal(again[written], results[written])
        assert not results[~written].any()
        for got, wanted in zip(given, expected, strict=True):
            assert got.tobytes() == wanted.tobytes()
        assert not state.any()  # ready for the next chain


TICKETS = """
#include "chain.h"
size_t joined(Chain *chain, size_t all) { return to_join(chain, all); }
size_t taken(Chain *chain, size_t ticket, size_t first, size_t all, size_t count) {
    return take_tickets(chain, ticket, first, all, count);
}
"""


@pytest.fixture(scope="module")
def tickets(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions of chain.h that take tickets."""
    folder = tmp_path_factory.mktemp("tickets")
    source, library = folder / "tickets.c", folder / "tickets.so"
    source.write_text(TICKETS)
    command = [sys.executable, "-m", PACKAGE, "cc", "-std=gnu11", f"-I{SOURCES}"]
    subprocess.run([*command, "-shared", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("threads", THREADS)
def test_a_thread_takes_as_much_as_leaves_two_shares_for_each_thread(
    tickets: ctypes.CDLL, threads: int
) -> None:
    for all_ in range(1, 70):
        state = np.zeros(STATE.shape, np.int32)
        come, taken = state[:1], state[16:17]
        chain = state.ctypes.data_as(ctypes.c_void_p)
        come[0], taken[0], first = threads, 5, 5
        shares = 0
        while (before := int(taken[0]) - first) < all_:
            count = tickets.taken(chain, first + before, first, all_, tickets.joined(chain, all_))
            assert int(taken[0]) == first + before + count
            assert before % count == 0
            shares += 1
        assert before == all_
        assert shares >= min(all_, 2 * max(threads, 2))
        assert shares <= max(8 * max(threads, 2), all_ // 8)


def test_tickets_begin_at_a_multiple_of_their_number(tickets: ctypes.CDLL) -> None:
    """Also if another thread has come after the first tickets were taken."""
    state = np.zeros(STATE.shape, np.int32)
    chain = state.ctypes.data_as(ctypes.c_void_p)
    assert tickets.taken(chain, 3, 3, 9, 4) == 0  # no ticket before the third one was taken
    state[16] = 3
    counts = [tickets.taken(chain, int(state[16]), 3, 9, most) for most in (1, 4, 4, 4, 4)]
    assert counts == [1, 1, 2, 4, 1]


def test_a_thread_that_is_late_takes_nothing(tickets: ctypes.CDLL) -> None:
    state = np.zeros(STATE.shape, np.int32)
    chain = state.ctypes.data_as(ctypes.c_void_p)
    assert tickets.taken(chain, 0, 0, 8, 2) == 2
    assert tickets.taken(chain, 0, 0, 8, 2) == 0
    assert state[16] == 2


def test_a_thread_takes_four_of_many_rows_at_a_time() -> None:
    (dispatch,) = dispatches(many_rows())
    assert dispatch.chain.c_text.count(", 132, 4);") == len([*dispatch.chain.calls]) == 2
