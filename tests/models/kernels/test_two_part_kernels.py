"""A head of 6 or 12 bits in two parts under every instruction set: its upper bits, then all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from models.dsl.fused import linear_upper
from models.dsl.fused.small_products import INT6, INT12
from tests.models.kernels.test_small_kernels import SHAPES, matrix, product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.dsl.packing import SmallForm
    from tests.models.kernels.kernel_library import Kernels

    Array = NDArray[Any]

both = pytest.mark.parametrize("form", [INT6, INT12], ids=lambda form: form.name)


def upper_product(
    kernels: Kernels, x: Array, arrays: tuple[Array, ...], skipped: Array | None = None
) -> Array:
    _, high, scale = arrays
    flags = np.zeros(len(x), np.int32) if skipped is None else skipped
    out = np.full((len(x), high.shape[0] * 16), np.nan, np.float32)
    return kernels("linear_upper", (x, high, scale, flags), out)


def refined(kernels: Kernels, x: Array, arrays: tuple[Array, ...], threshold: Array) -> Array:
    low, high, scale = arrays
    coarse = upper_product(kernels, x, arrays)
    inputs = (x, high, low, scale, coarse, threshold.astype(np.float32))
    return kernels("linear_refined", inputs, np.full_like(coarse, np.nan))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 3, 8])
@both
def test_a_coarse_product_is_that_of_the_upper_bits(
    kernels: Kernels, form: SmallForm, shape: tuple[int, int], rows: int
) -> None:
    arrays, values = matrix(form, *shape)
    _, high, scale = arrays
    x = np.random.default_rng(0).normal(size=(rows, shape[1])).astype(np.float32)
    actual = upper_product(kernels, x, arrays)
    expected = linear_upper.evaluate((x, high, scale, np.zeros(rows, np.int32)), {})
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-3)
    # A weight is half a step of the upper bits away at most, an activation half a step of 127.
    half = 2 if form is INT6 else 0.5
    steps = np.repeat(scale.transpose(0, 2, 1).reshape(shape[0], -1), form.columns, axis=1) * half
    rounding = np.repeat(np.abs(x).reshape(rows, -1, 32).max(axis=2) / 254, 32, axis=1)
    weights = np.abs(values) + steps.astype(np.float64)
    bound = np.abs(x) @ steps.astype(np.float64).T + rounding @ weights.T + 1e-5
    assert (np.abs(actual - x @ values.T) < bound).all()


@both
def test_a_coarse_product_that_no_row_needs_is_not_computed(
    kernels: Kernels, form: SmallForm
) -> None:
    arrays, _ = matrix(form, 16 * 19, 64)
    x = np.ones((2, 64), np.float32)
    assert not upper_product(kernels, x, arrays, np.array([1, 1], np.int32)).any()
    one = upper_product(kernels, x, arrays, np.array([1, 0], np.int32))
    assert np.array_equal(one, upper_product(kernels, x, arrays))


@pytest.mark.parametrize("shape", SHAPES)
@both
def test_refined_outputs_have_the_bits_of_a_whole_product(
    kernels: Kernels, form: SmallForm, shape: tuple[int, int]
) -> None:
    arrays, _ = matrix(form, *shape)
    x = np.random.default_rng(1).normal(size=(3, shape[1])).astype(np.float32)
    coarse, whole = upper_product(kernels, x, arrays), product(kernels, form, x, arrays)
    threshold = np.array([-np.inf, np.inf, np.median(coarse[2])])
    actual = refined(kernels, x, arrays, threshold)
    assert np.array_equal(actual[0], whole[0])
    assert np.array_equal(actual[1], coarse[1])
    reached = np.repeat(coarse[2].reshape(-1, 16).max(axis=1) >= threshold[2], 16)
    assert np.array_equal(actual[2], np.where(reached, whole[2], coarse[2]))


@both
def test_every_instruction_set_gives_the_same_bits(
    built: dict[str, Kernels], form: SmallForm
) -> None:
    arrays, _ = matrix(form, 32, 32 * 65)
    x = np.random.default_rng(4).normal(size=(19, 32 * 65)).astype(np.float32)
    half = np.full(len(x), 2.0)
    first, *others = (refined(kernels, x, arrays, half) for kernels in built.values())
    assert all(np.array_equal(first, other) for other in others)
