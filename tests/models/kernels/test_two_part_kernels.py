"""A head of 6 or 12 bits in two parts under every instruction set: its upper bits, then all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.fused import linear_upper
from hearthd.models.dsl.fused.small_products import INT6, INT12
from tests.models.kernels.test_small_kernels import SHAPES, matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.packing import SmallForm
    from tests.models.kernels.kernel_library import Kernels

    Array = NDArray[Any]

# More columns than a panel has of one row.
_LONG = (32, 32 * 520)

both = pytest.mark.parametrize("form", [INT6, INT12], ids=lambda form: form.name)


def lower_limit(form: SmallForm, scale: Array) -> Array:
    """What a weight is more or less at most than its upper bits are: half a step of these."""
    half = 2 if form is INT6 else 0.5
    by_row = scale.transpose(0, 2, 1).reshape(scale.shape[0] * 16, -1).astype(np.float64)
    return np.repeat(by_row, form.columns, axis=1) * half


def upper_product(kernels: Kernels, x: Array, arrays: tuple[Array, ...]) -> Array:
    _, high, scale = arrays
    out = np.full((len(x), high.shape[0] * 16), np.nan, np.float32)
    return kernels("linear_upper", (x, high, scale), out)


def refined(
    kernels: Kernels, form: SmallForm, x: Array, arrays: tuple[Array, ...], threshold: Array
) -> Array:
    low, _, scale = arrays
    coarse = upper_product(kernels, x, arrays)
    inputs = (x, low, scale, coarse, threshold.astype(np.float32))
    out = np.full_like(coarse, np.nan)
    return kernels("linear_refined", inputs, out, bits=form.bits)


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
    expected = linear_upper.evaluate((x, high, scale), {})
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-3)
    bound = np.abs(x) @ lower_limit(form, scale).T * 1.001 + 1e-3
    assert (np.abs(actual - x @ values.T) < bound).all()


@pytest.mark.parametrize("shape", [*SHAPES, _LONG])
@both
def test_refined_outputs_are_a_whole_product(
    kernels: Kernels, form: SmallForm, shape: tuple[int, int]
) -> None:
    arrays, values = matrix(form, *shape)
    x = np.random.default_rng(1).normal(size=(3, shape[1])).astype(np.float32)
    coarse = upper_product(kernels, x, arrays)
    threshold = np.array([-np.inf, np.inf, np.median(coarse[2])])
    actual = refined(kernels, form, x, arrays, threshold)
    reached = np.repeat(coarse[2].reshape(-1, 16).max(axis=1) >= threshold[2], 16)
    assert np.array_equal(actual[1], coarse[1])
    assert np.array_equal(actual[2][~reached], coarse[2][~reached])
    # Activations are half a step away at most: of 16 bits, beside a lower part of 4 bits of 12.
    step = np.repeat(np.abs(x).reshape(3, -1, 32).max(axis=2) / 127, 32, axis=1)
    lower = lower_limit(form, arrays[2])
    bound = step @ ((np.abs(values) + lower) / 508 + lower / 32).T + 1e-4
    is_exact = np.abs(actual - x.astype(np.float64) @ values.T) < bound
    assert is_exact[0].all()
    assert is_exact[2][reached].all()


@both
def test_every_instruction_set_gives_the_same_bits(
    built: dict[str, Kernels], form: SmallForm
) -> None:
    arrays, _ = matrix(form, 32, 32 * 65)
    x = np.random.default_rng(4).normal(size=(19, 32 * 65)).astype(np.float32)
    half = np.full(len(x), 2.0)
    first, *others = (refined(kernels, form, x, arrays, half) for kernels in built.values())
    assert all(np.array_equal(first, other) for other in others)
