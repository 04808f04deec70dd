"""The kernels of each format of matrices under every instruction set, against f64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.fused import linear_quantized
from hearthd.models.dsl.fused.quantized_products import sample_integers
from hearthd.models.dsl.matrix_format import FORMATS, INT8, STORED
from hearthd.models.dsl.matrix_packing import pack
from tests.models.kernels.kernel_library import ALL_FORMATS, FEW_AT_DAY
from tests.models.unpacked import float8, real_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.matrix_format import MatrixFormat
    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]

# Rows and columns of a matrix: a block; workgroups of unequal size; more than a panel of columns.
SHAPES = [(16, 32), (16 * 19, 64), (32, 32 * 65)]
BY_NAME = {one.name: one for one in STORED}


def steps(matrix_format: MatrixFormat, activation_bits: int) -> int:
    """Steps of the second integer of an activation: 12 bits beside 4 bits, 16 beside others."""
    if activation_bits == 8:
        return 1
    return 16 if matrix_format.name.startswith("int4") else 254


@pytest.fixture(params=[16, 8])
def activation_bits(request: pytest.FixtureRequest) -> int:
    bits: int = request.param
    return bits


@pytest.fixture(params=ALL_FORMATS)
def form(request: pytest.FixtureRequest) -> MatrixFormat:
    form: MatrixFormat = request.param
    return form


def matrix(form: MatrixFormat, rows: int, columns: int) -> tuple[tuple[Array, ...], Array]:
    """The stored arrays, and the values in f64."""
    rng = np.random.default_rng(rows)
    integers = sample_integers(rng, form, rows, columns)
    if form.grid is None:
        integers[0], integers[1] = form.range
    shared = form.super_block or form.columns
    scales = (rows, -(-columns // shared))
    scale: Array = rng.uniform(1e-3, 1e-2, size=scales).astype(
        np.float16 if form.exponents else form.scale.numpy
    )
    stored_scale = scale
    if form.exponents:
        stored_scale = rng.integers(117, 121, size=scales, dtype=np.int8)
        scale = 2.0 ** (stored_scale.astype(np.float64) - 127)
    minimum = rng.uniform(-0.1, 0.01, size=scales).astype(np.float16) if form.minimum else None
    multipliers = multipliers_of(form, rng, rows, columns)

    def by_column(factors: Array, i: int) -> Array:
        """A scale or a minimum for each column."""
        values = np.repeat(factors.astype(np.float64), shared, axis=1)[:, :columns]
        if multipliers is not None:
            each = float8(multipliers) if form.multiplier_floats else multipliers
            values *= np.repeat(each[..., i], form.columns, axis=1)
        return values

    numbered = (
        np.array(form.values, np.float64)[integers] if form.values else integers | form.missing
    )
    values = (numbered.astype(np.float64) - form.zero) * by_column(scale, 0) / form.steps
    if minimum is not None:
        values += by_column(minimum, 1)
    return pack(form, integers, stored_scale, minimum, multipliers), values


def multipliers_of(
    form: MatrixFormat, rng: np.random.Generator, rows: int, columns: int
) -> NDArray[np.int8] | None:
    """Integers of any size that multiply scales and minimums, if the format has some."""
    if not form.has_multipliers:
        return None
    low, high = (-128, 127) if form.multiplier_bits == 8 else (0, 15)
    shape = (rows, columns // form.columns, 1 + form.minimum)
    if form.multiplier_bits != 8 and not form.minimum:
        bits = form.grid.multiplier_bits if form.grid and form.grid.multiplier else 4
        return rng.integers(0, 1 << bits, size=shape, dtype=np.int8) * 2 + 1
    if form.multiplier_floats:  # of up to 30
        return rng.integers(0, 0x60, size=shape, dtype=np.int8)
    multipliers = rng.integers(low, high + 1, size=shape, dtype=np.int8)
    multipliers[0], multipliers[1] = low, high
    return multipliers


def product(
    kernels: Kernels,
    form: MatrixFormat,
    x: Array,
    arrays: tuple[Array, ...],
    activation_bits: int = 16,
) -> Array:
    out = np.full((len(x), arrays[0].shape[0] * 16), np.nan, np.float32)
    attrs = {"matrix_format": form.name, "activation_bits": activation_bits}
    return kernels("linear_quantized", (x, *arrays), out, **attrs)


def rows_of(kernels: Kernels, form: MatrixFormat, ids: Array, arrays: tuple[Array, ...]) -> Array:
    out = np.full((len(ids), arrays[0].shape[1] * 32), np.nan, np.float32)
    return kernels("embedding_quantized", (ids, *arrays), out, matrix_format=form.name)


def test_integers_are_unpacked_as_they_were_packed(form: MatrixFormat) -> None:
    arrays, values = matrix(form, 32, 96)
    actual = real_weights(arrays, form)
    np.testing.assert_allclose(actual, values, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 13, 149])
def test_a_product_is_exact_to_the_bits_of_the_activations(
    kernels: Kernels, form: MatrixFormat, shape: tuple[int, int], rows: int, activation_bits: int
) -> None:
    arrays, values = matrix(form, *shape)
    x = np.random.default_rng(0).normal(size=(rows, shape[1])).astype(np.float32)
    x[12:13] = 1  # with rows 0 and 1 of the matrix, the largest sums
    actual = product(kernels, form, x, arrays, activation_bits)
    # Half a step of a group is max |x| / 127 / steps / 2; it counts once for each weight.
    step = np.abs(x).reshape(rows, -1, 32).max(axis=2) / (127 * steps(form, activation_bits))
    bound = np.repeat(step / 2, 32, axis=1) @ np.abs(values).T + 3e-5
    assert (np.abs(actual - x @ values.T) < bound).all()


def test_a_product_is_that_of_its_function(
    kernels: Kernels, form: MatrixFormat, activation_bits: int
) -> None:
    arrays, values = matrix(form, 48, 128)
    x = np.random.default_rng(2).normal(size=(5, values.shape[1])).astype(np.float32)
    expected = linear_quantized.evaluate(
        (x, *arrays), {"matrix_format": form.name, "activation_bits": activation_bits}
    )
    actual = product(kernels, form, x, arrays, activation_bits)
    rounding = 2.0**-21 * (np.abs(x) @ np.abs(values).T)  # eight of f32
    assert (np.abs(actual - expected) <= rounding).all()


def test_a_row_has_the_same_bits_beside_any_other_row(
    kernels: Kernels, form: MatrixFormat, activation_bits: int
) -> None:
    arrays, values = matrix(form, 48, 32 * 66)
    x = np.random.default_rng(1).normal(size=(93, values.shape[1])).astype(np.float32)

    def products(x: Array) -> Array:
        return product(kernels, form, x, arrays, activation_bits)

    alone = np.concatenate([products(row[None]) for row in x])
    for rows in (2, 13, 93):
        assert np.array_equal(products(x[:rows].copy()), alone[:rows])


@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-30, 1.0, 1e30])
def test_a_product_of_extreme_activations(
    kernels: Kernels, form: MatrixFormat, size: float, activation_bits: int
) -> None:
    arrays, values = matrix(form, 16, 64)
    x = np.full((2, 64), size, np.float32)
    x[1, 5:] = 0  # a group with one large value and zeros
    actual = product(kernels, form, x, arrays, activation_bits)
    bound = 2e-5 * (np.abs(x) @ np.abs(values).T) + 1e-29
    assert (np.abs(actual - x.astype(np.float64) @ values.T) <= bound).all()


def test_a_row_of_a_table_is_its_values(kernels: Kernels, form: MatrixFormat) -> None:
    table = form.table or form
    arrays, values = matrix(table, 48, 96)
    ids = np.array([47, 0, 16, 31, 31], np.int32)
    actual = rows_of(kernels, table, ids, arrays)
    np.testing.assert_allclose(actual, values[ids], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("form", FEW_AT_DAY)
def test_every_instruction_set_gives_the_same_bits(
    built: BuiltKernels, form: MatrixFormat, activation_bits: int
) -> None:
    arrays, values = matrix(form, 32, 32 * 65)
    x = np.random.default_rng(4).normal(size=(27, values.shape[1])).astype(np.float32)
    ids = np.array([3, 31], np.int32)
    table = form.table or form
    rows, _ = matrix(table, 32, 96)
    first, *others = (
        (product(kernels, form, x, arrays, activation_bits), rows_of(kernels, table, ids, rows))
        for kernels in built.values()
    )
    for other in others:
        assert all(map(np.array_equal, first, other))


# --- activations, seen through a matrix of int8


@pytest.fixture
def units() -> tuple[Array, ...]:
    """A weight of 127 in each row, so that a product shows the bits of one activation."""
    scale = np.ones((16, 1), np.float16)
    return pack(INT8, np.eye(16, 32, dtype=np.int8) * np.int8(127), scale)


def test_activations_are_rounded_as_numpy_rounds_them(
    kernels: Kernels, units: tuple[Array, ...], activation_bits: int
) -> None:
    x = np.random.default_rng(2).normal(size=(5, 32)).astype(np.float32)
    attrs = {"matrix_format": INT8.name, "activation_bits": activation_bits}
    expected = linear_quantized.evaluate((x, *units), attrs)
    actual = product(kernels, INT8, x, units, activation_bits)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=2e-6)


def test_a_tie_of_activations_of_eight_bits_is_rounded_to_even(kernels: Kernels) -> None:
    arrays = pack(INT8, np.eye(16, 32, dtype=np.int8), np.ones((16, 1), np.float16))
    x = np.zeros((1, 32), np.float32)
    x[0, :16] = [127, -127, *(step + 0.5 for step in range(-7, 7))]
    expected = [127, -127, *(round(step + 0.5) for step in range(-7, 7))]
    assert product(kernels, INT8, x, arrays, 8)[0].tolist() == expected


def test_every_format_has_a_name_of_its_own() -> None:
    assert all(FORMATS[one.name] is one for one in STORED)
    assert len({one.symbol for one in FORMATS.values()}) == len(FORMATS)
