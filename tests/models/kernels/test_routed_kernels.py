"""Products with the matrices of experts under every instruction set, against f64."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import resource
import signal
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from tests.models.kernels import test_quantized_kernels
from tests.models.kernels.kernel_library import FEW_FORMATS
from tests.models.kernels.test_quantized_kernels import BY_NAME, steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]
    # A kernel's op, the stored arrays, the op's attributes, the values in f64 (experts, N, K).
    Matrices = tuple[str, tuple[Array, ...], dict[str, Any], Array]

# Stored forms; with `_a8`, beside activations of 8 bits.
STORED = [
    pytest.param(stored, marks=() if form is None or form in FEW_FORMATS else pytest.mark.nightly)
    for name, form in {"f32": None, "bf16": None, **BY_NAME}.items()
    for stored in ([name] if form is None else [name, f"{name}_a8"])
]
EXPERTS = 5
# Rows and columns of an expert's matrix: a block; workgroups of unequal size; more than a panel of
# columns.
SHAPES = [(16, 32), (16 * 19, 64), (32, 32 * 65)]


def matrices(stored: str, rows: int, columns: int, experts: int = EXPERTS) -> Matrices:
    values: Array
    more = {"activation_bits": 8} if stored.endswith("_a8") else {}
    stored, attributes = stored.removesuffix("_a8"), dict[str, Any]()
    if stored in BY_NAME:
        arrays, values = test_quantized_kernels.matrix(BY_NAME[stored], experts * rows, columns)
        op, attributes = "routed_linear_quantized", {"matrix_format": stored}
    else:
        dtype = np.float32 if stored == "f32" else ml_dtypes.bfloat16
        weight = np.random.default_rng(rows).normal(size=(experts * rows, columns)).astype(dtype)
        op, arrays, attributes = "routed_linear", (weight,), {}
        values = weight.astype(np.float64)
    shape = (experts, rows, columns)
    return op, arrays, {**attributes, **more, "experts": experts}, values.reshape(shape)


def product(kernels: Kernels, made: Matrices, x: Array, chosen: Array) -> Array:
    op, arrays, attributes, values = made
    out = np.full((len(chosen), values.shape[1]), np.nan, np.float32)
    return kernels(op, (x, chosen, *arrays), out, **attributes)


def inputs(rows: int, columns: int, experts: int = EXPERTS) -> tuple[Array, Array]:
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    return x, rng.integers(0, experts, rows, dtype=np.int32)


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 3, 8, 131])
def test_a_row_is_multiplied_with_the_matrix_of_its_expert(
    kernels: Kernels, stored: str, shape: tuple[int, int], rows: int
) -> None:
    made = matrices(stored, *shape)
    x, chosen = inputs(rows, shape[1])
    expected = np.einsum("mk,mnk->mn", x.astype(np.float64), made[3][chosen])
    # Half a step of a group is max |x| / 127 / steps / 2; f32 weights have no such steps.
    form, bits = BY_NAME.get(stored.removesuffix("_a8")), 8 if stored.endswith("_a8") else 16
    count = steps(form, bits) if form else 254
    error = np.abs(x).reshape(rows, -1, 32).max(axis=2) / (127 * count * 2)
    bound = np.einsum("mk,mnk->mn", np.repeat(error, 32, axis=1), np.abs(made[3][chosen])) + 2e-5
    assert (np.abs(product(kernels, made, x, chosen) - expected) < bound).all()


def test_floats_may_have_any_number_of_rows_and_columns(kernels: Kernels) -> None:
    for shape in ((1, 1), (17, 21), (5, 16)):
        made = matrices("f32", *shape)
        x, chosen = inputs(9, shape[1])
        expected = np.einsum("mk,mnk->mn", x.astype(np.float64), made[3][chosen])
        np.testing.assert_allclose(product(kernels, made, x, chosen), expected, atol=1e-5)


@pytest.mark.parametrize("stored", STORED)
def test_a_row_has_the_same_bits_in_every_batch(kernels: Kernels, stored: str) -> None:
    made = matrices(stored, 48, 32 * 66)
    x, chosen = inputs(83, 32 * 66)
    together = product(kernels, made, x, chosen)
    for i in range(len(x)):
        alone = product(kernels, made, x[i : i + 1].copy(), chosen[i : i + 1].copy())
        assert np.array_equal(alone[0], together[i])


@pytest.mark.parametrize("stored", STORED)
def test_a_row_goes_through_several_experts(kernels: Kernels, stored: str) -> None:
    made = matrices(stored, 48, 64)
    x, chosen = inputs(90, 64)
    several = product(kernels, made, x[:30].copy(), chosen)
    repeated = product(kernels, made, np.repeat(x[:30], 3, axis=0), chosen)
    assert np.array_equal(several, repeated)


def test_an_expert_that_does_not_exist_is_the_nearest_that_does(kernels: Kernels) -> None:
    made = matrices("f32", 16, 32)
    x, _ = inputs(2, 32)
    actual = product(kernels, made, x, np.array([-7, EXPERTS + 9], np.int32))
    last = np.array([0, EXPERTS - 1], np.int32)
    assert np.array_equal(actual, product(kernels, made, x, last))


@pytest.mark.nightly
@pytest.mark.parametrize("stored", STORED)
def test_every_instruction_set_gives_the_same_bits(built: BuiltKernels, stored: str) -> None:
    made = matrices(stored, 32, 32 * 65)
    x, chosen = inputs(83, 32 * 65)
    first, *others = (product(kernels, made, x, chosen) for kernels in built.values())
    assert all(np.array_equal(first, other) for other in others)


# --- what is read


def paged(array: Array) -> Array:
    """A copy that starts at a page of its own."""
    copy = np.frombuffer(mmap.mmap(-1, array.nbytes), array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


def ends_by(kernels: Kernels, made: Matrices, x: Array, chosen: Array, hidden: list[int]) -> int:
    """The signal that ends a process in which reading the matrices of `hidden` experts is one."""
    op, (weight, *rest), attributes, values = made
    pages = paged(weight)
    size = weight.nbytes // EXPERTS
    assert size % mmap.PAGESIZE == 0
    child = os.fork()
    if child:
        return os.WTERMSIG(os.waitpid(child, 0)[1])
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None)
    for expert in hidden:
        libc.mprotect(ctypes.c_void_p(pages.ctypes.data + expert * size), ctypes.c_size_t(size), 0)
    product(kernels, (op, (pages, *rest), attributes, values), x, chosen)
    os._exit(0)


@pytest.mark.parametrize("stored", ["f32", "bf16", "int8-g32", "int4-g32-min"])
def test_only_the_matrices_of_chosen_experts_are_read(built: BuiltKernels, stored: str) -> None:
    """The pages of the others may not be read: a process that does so is ended."""
    kernels = next(iter(built.values()))
    made = matrices(stored, 64, 128)
    x, _ = inputs(3, 128)
    chosen = np.array([3, 1, 3], np.int32)
    assert ends_by(kernels, made, x, chosen, [0, 2, 4]) == 0
    for expert in (1, 3):
        assert ends_by(kernels, made, x, chosen, [expert]) == signal.SIGSEGV
