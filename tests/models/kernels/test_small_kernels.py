"""The kernels of integers of 4 to 6 and 12 bits under every instruction set, against f64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import packing
from hearthd.models.dsl.fused import linear_small
from hearthd.models.dsl.fused.small_products import FORMS
from tests.models.unpacked import small_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.packing import SmallForm
    from tests.models.kernels.kernel_library import Kernels

    Array = NDArray[Any]

# Rows and columns of a matrix: a block; workgroups of unequal size; more than a panel of columns.
SHAPES = [(16, 32), (16 * 19, 64), (32, 32 * 65)]
# Steps of the second integer of an activation: 12 bits beside 4 bits, 16 beside others.
STEPS = {4: 16, 5: 254, 6: 254, 12: 254}
BY_NAME = {form.name: form for form in FORMS}


@pytest.fixture(params=[16, 8])
def activation_bits(request: pytest.FixtureRequest) -> int:
    bits: int = request.param
    return bits


@pytest.fixture(params=BY_NAME)
def form(request: pytest.FixtureRequest) -> SmallForm:
    return BY_NAME[request.param]


def matrix(form: SmallForm, rows: int, columns: int) -> tuple[tuple[Array, ...], Array]:
    """The stored arrays, and the values in f64."""
    rng = np.random.default_rng(rows)
    least, dtype = (-2048, np.int16) if form.bits == 12 else (0, np.uint8)
    largest = least + (1 << form.bits) - 1
    integers = rng.integers(least, largest + 1, size=(rows, columns), dtype=dtype)
    integers[0], integers[1] = least, largest
    groups = (rows, columns // form.columns)
    scale = rng.uniform(1e-3, 1e-2, size=groups).astype(np.float16)
    minimum = rng.uniform(-0.1, 0.01, size=groups).astype(np.float16) if form.minimum else None
    scales = np.repeat(scale.astype(np.float64), form.columns, axis=1)
    values = (integers.astype(np.float64) - form.zero) * scales
    if form.bits == 12:
        values /= 16  # the scale is that of the upper 8 bits
    if minimum is not None:
        values += np.repeat(minimum, form.columns, axis=1)
    return packing.pack_small(form, integers, scale, minimum), values


def attrs(form: SmallForm) -> dict[str, Any]:
    return {"bits": form.bits, "minimum": form.minimum}


def product(
    kernels: Kernels,
    form: SmallForm,
    x: Array,
    arrays: tuple[Array, ...],
    activation_bits: int = 16,
) -> Array:
    out = np.full((len(x), arrays[0].shape[0] * 16), np.nan, np.float32)
    return kernels(
        "linear_small", (x, *arrays), out, **attrs(form), activation_bits=activation_bits
    )


def rows_of(kernels: Kernels, form: SmallForm, ids: Array, arrays: tuple[Array, ...]) -> Array:
    out = np.full((len(ids), arrays[0].shape[1] * 32), np.nan, np.float32)
    return kernels("embedding_small", (ids, *arrays), out, **attrs(form))


def test_integers_are_unpacked_as_they_were_packed(form: SmallForm) -> None:
    arrays, values = matrix(form, 32, 96)
    actual = small_weights(arrays, bits=form.bits, has_minimum=form.minimum)
    np.testing.assert_allclose(actual, values, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 13, 39])
def test_a_product_is_exact_to_the_bits_of_the_activations(
    kernels: Kernels, form: SmallForm, shape: tuple[int, int], rows: int, activation_bits: int
) -> None:
    arrays, values = matrix(form, *shape)
    x = np.random.default_rng(0).normal(size=(rows, shape[1])).astype(np.float32)
    actual = product(kernels, form, x, arrays, activation_bits)
    # Half a step of a group is max |x| / 127 / steps / 2; it counts once for each weight.
    steps = 1 if activation_bits == 8 else STEPS[form.bits]
    error = np.abs(x).reshape(rows, -1, 32).max(axis=2) / (127 * steps * 2)
    bound = np.repeat(error, 32, axis=1) @ np.abs(values).T + 3e-5
    assert (np.abs(actual - x @ values.T) < bound).all()


def test_a_product_is_that_of_its_function(
    kernels: Kernels, form: SmallForm, activation_bits: int
) -> None:
    arrays, values = matrix(form, 48, 128)
    x = np.random.default_rng(2).normal(size=(5, values.shape[1])).astype(np.float32)
    expected = linear_small.evaluate(
        (x, *arrays), {**attrs(form), "activation_bits": activation_bits}
    )
    actual = product(kernels, form, x, arrays, activation_bits)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_a_row_has_the_same_bits_beside_any_other_row(
    kernels: Kernels, form: SmallForm, activation_bits: int
) -> None:
    arrays, values = matrix(form, 48, 32 * 66)
    x = np.random.default_rng(1).normal(size=(39, values.shape[1])).astype(np.float32)

    def products(x: Array) -> Array:
        return product(kernels, form, x, arrays, activation_bits)

    alone = np.concatenate([products(row[None]) for row in x])
    for rows in (2, 13, 39):
        assert np.array_equal(products(x[:rows].copy()), alone[:rows])


@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-30, 1.0, 1e30])
def test_a_product_of_extreme_activations(
    kernels: Kernels, form: SmallForm, size: float, activation_bits: int
) -> None:
    arrays, values = matrix(form, 16, 64)
    x = np.full((2, 64), size, np.float32)
    x[1, 5:] = 0  # a group with one large value and zeros
    actual = product(kernels, form, x, arrays, activation_bits)
    bound = 2e-5 * (np.abs(x) @ np.abs(values).T) + 1e-29
    assert (np.abs(actual - x.astype(np.float64) @ values.T) <= bound).all()


def test_a_row_of_a_table_is_its_values(kernels: Kernels, form: SmallForm) -> None:
    arrays, values = matrix(form, 48, 96)
    ids = np.array([47, 0, 16, 31, 31], np.int32)
    actual = rows_of(kernels, form, ids, arrays)
    np.testing.assert_allclose(actual, values[ids], rtol=1e-6, atol=1e-8)


def test_every_instruction_set_gives_the_same_bits(
    built: dict[str, Kernels], form: SmallForm, activation_bits: int
) -> None:
    arrays, values = matrix(form, 32, 32 * 65)
    x = np.random.default_rng(4).normal(size=(27, values.shape[1])).astype(np.float32)
    ids = np.array([3, 31], np.int32)
    first, *others = (
        (product(kernels, form, x, arrays, activation_bits), rows_of(kernels, form, ids, arrays))
        for kernels in built.values()
    )
    for other in others:
        assert all(map(np.array_equal, first, other))
