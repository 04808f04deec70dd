"""Products with matrices of bf16 under every instruction set, against f64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.ops.matmul import DECODE_ROWS
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]

# Rows and columns of a matrix: tiles; outputs and columns that fill none; workgroups of unequal
# size; more than a panel of columns.
SHAPES = [(32, 64), (53, 45), (16 * 37, 96), (19, 32 * 43)]
# Rows that fill tiles, pairs of them, and parts of them; more than a workgroup has.
MANY = [DECODE_ROWS + 1, 16, 29, 64, 270]
BF16 = DType.BF16.numpy


def matrix(outputs: int, columns: int) -> Array:
    return np.random.default_rng(outputs).normal(size=(outputs, columns)).astype(BF16)


def rows_of(count: int, columns: int) -> Array:
    x: Array = np.random.default_rng(count).normal(size=(count, columns)).astype(np.float32)
    return x


def product(kernels: Kernels, x: Array, weight: Array) -> Array:
    """Rows of bf16 have another kernel."""
    out = np.full((len(x), len(weight)), np.nan, np.float32)
    op = "linear_bf16" if x.dtype == np.float32 else "linear_rounded_bf16"
    return kernels(op, (x, weight), out)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [*range(1, DECODE_ROWS + 1), *MANY])
def test_a_product_is_exact_but_for_the_rounding_of_its_sums(
    kernels: Kernels, shape: tuple[int, int], rows: int
) -> None:
    weight, x = matrix(*shape), rows_of(rows, shape[1])
    x = x if rows <= DECODE_ROWS else x.astype(BF16)
    exact, wide = x.astype(np.float64), weight.astype(np.float64)
    bound = 2.0**-20 * (np.abs(exact) @ np.abs(wide).T)
    assert (np.abs(product(kernels, x, weight) - exact @ wide.T) < bound).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_beside_any_other_row(
    kernels: Kernels, shape: tuple[int, int]
) -> None:
    weight, x = matrix(*shape), rows_of(270, shape[1])
    alone = np.concatenate([product(kernels, x[i : i + 1], weight) for i in range(DECODE_ROWS)])
    for rows in range(2, DECODE_ROWS + 1):
        assert np.array_equal(product(kernels, x[:rows], weight), alone[:rows])
    rounded = x.astype(BF16)
    together = product(kernels, rounded, weight)
    for rows in MANY:
        for start in (0, 270 - rows):
            some = product(kernels, rounded[start : start + rows], weight)
            assert np.array_equal(some, together[start : start + rows])


@pytest.mark.parametrize("shape", SHAPES)
def test_instruction_sets_give_the_same_bits(built: BuiltKernels, shape: tuple[int, int]) -> None:
    """Of a few rows all of them, and of many rows those without tiles."""
    weight, x = matrix(*shape), rows_of(40, shape[1])
    first, *others = (product(one, x[:DECODE_ROWS], weight) for one in built.values())
    assert all(np.array_equal(first, other) for other in others)
    rounded = x.astype(BF16)
    first, *others = (product(one, rounded, weight) for name, one in built.items() if name != "amx")
    assert all(np.array_equal(first, other) for other in others)
