"""A head in two parts under every instruction set: its upper bits, then all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.fused import linear_coarse, linear_quantized
from hearthd.models.dsl.fused.quantized_products import some_outputs
from hearthd.models.dsl.matrix_format import INT6_SUPER, INT8_HALVES, INT12, Split
from tests.models.kernels.test_quantized_kernels import SHAPES, matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.matrix_format import MatrixFormat
    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]

# More columns than a panel has of one row.
_LONG = (32, 32 * 520)

# The largest part of a scale by which the upper bits alone miss a weight, and the steps of the
# second integer of an activation beside the lower bits.
MISSED = {INT6_SUPER.name: 2.0, INT8_HALVES.name: 8.0, INT12.name: 0.5}
LOWER_STEPS = {INT6_SUPER.name: 254, INT8_HALVES.name: 16, INT12.name: 16}
every_format = pytest.mark.parametrize(
    "form", [INT6_SUPER, INT8_HALVES, INT12], ids=lambda form: form.name
)


def split_of(form: MatrixFormat) -> Split:
    assert form.split is not None
    return form.split


def parts(
    form: MatrixFormat, arrays: tuple[Array, ...]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """The stored arrays of the upper and of the lower part of a matrix."""
    planes = sorted(zip(form.planes, arrays, strict=False), key=lambda pair: pair[0].start)
    (_, lower), (_, upper) = planes
    factors = arrays[len(planes) :]
    return (upper, *factors), (lower, *factors)


def missed(form: MatrixFormat, arrays: tuple[Array, ...]) -> Array:
    """The largest difference between a weight and the value of its upper bits."""
    scale, *multiplier = arrays[len(form.planes) :]
    scale = scale.astype(np.float64)
    if multiplier:
        groups = multiplier[0].shape[1]
        scale = np.repeat(scale, form.super_block // form.columns, axis=1)[:, :groups]
        scale = np.abs(scale * multiplier[0][:, :, 0])
    by_row = scale.transpose(0, 2, 1).reshape(scale.shape[0] * 16, -1)
    return np.repeat(by_row, form.columns, axis=1) * MISSED[form.name]


def upper_product(
    kernels: Kernels,
    form: MatrixFormat,
    x: Array,
    arrays: tuple[Array, ...],
    *,
    outputs: int | None = None,
    exact: Array | None = None,
) -> Array:
    upper, _ = parts(form, arrays)
    out = np.full((len(x), outputs or upper[0].shape[0] * 16), np.nan, np.float32)
    attrs = {"matrix_format": split_of(form).upper.name, **some_outputs(outputs)}
    flags = np.ones(len(x), np.int32) if exact is None else exact
    return kernels("linear_coarse", (x, flags, *upper), out, **attrs)


def with_16_bits(
    kernels: Kernels, form: MatrixFormat, x: Array, arrays: tuple[Array, ...], threshold: Array
) -> Array:
    """Outputs of activations of 8 bits; those that matter are computed again."""
    upper, _ = parts(form, arrays)
    coarse = upper_product(kernels, form, x, arrays, exact=np.zeros(len(x), np.int32))
    inputs = (coarse, x, threshold.astype(np.float32), *upper)
    attrs = {"matrix_format": split_of(form).upper.name, "replaces": True}
    return kernels("linear_refined", inputs, np.full_like(coarse, np.nan), **attrs)


def refined(
    kernels: Kernels,
    form: MatrixFormat,
    x: Array,
    arrays: tuple[Array, ...],
    threshold: Array,
    *,
    outputs: int | None = None,
) -> Array:
    _, lower = parts(form, arrays)
    coarse = upper_product(kernels, form, x, arrays, outputs=outputs)
    inputs = (coarse, x, threshold.astype(np.float32), *lower)
    attrs = {"matrix_format": split_of(form).lower.name, "step": split_of(form).step}
    return kernels("linear_refined", inputs, np.full_like(coarse, np.nan), **attrs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 3, 8])
@every_format
def test_a_coarse_product_is_that_of_the_upper_bits(
    kernels: Kernels, form: MatrixFormat, shape: tuple[int, int], rows: int
) -> None:
    arrays, values = matrix(form, *shape)
    upper, _ = parts(form, arrays)
    x = np.random.default_rng(0).normal(size=(rows, shape[1])).astype(np.float32)
    actual = upper_product(kernels, form, x, arrays)
    attrs = {"matrix_format": split_of(form).upper.name}
    expected = linear_coarse.evaluate((x, np.ones(rows, np.int32), *upper), attrs)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-3)
    bound = np.abs(x) @ missed(form, arrays).T * 1.001 + 1e-3
    assert (np.abs(actual - x @ values.T) < bound).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 2, 5, 19])
@every_format
def test_rows_without_a_flag_are_rounded_to_8_bits(
    kernels: Kernels, form: MatrixFormat, shape: tuple[int, int], rows: int
) -> None:
    arrays, _ = matrix(form, *shape)
    upper, _ = parts(form, arrays)
    rng = np.random.default_rng(3)
    x, exact = rng.normal(size=(rows, shape[1])).astype(np.float32), rng.integers(-1, 3, rows)
    exact = exact.astype(np.int32)
    actual = upper_product(kernels, form, x, arrays, exact=exact)
    attrs = {"matrix_format": split_of(form).upper.name}
    expected = linear_coarse.evaluate((x, exact, *upper), attrs)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-3)
    by_flag = (
        linear_quantized.evaluate((x, *upper), attrs | {"activation_bits": bits})
        for bits in (16, 8)
    )
    chosen = np.where(exact[:, np.newaxis] > 0, *by_flag)
    np.testing.assert_allclose(actual, chosen, rtol=1e-5, atol=1e-3)


@every_format
def test_a_row_has_the_same_bits_beside_rows_with_any_flags(
    kernels: Kernels, form: MatrixFormat
) -> None:
    arrays, _ = matrix(form, 16 * 5, 96)
    x = np.random.default_rng(6).normal(size=(19, 96)).astype(np.float32)
    exact = np.array([0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1], np.int32)
    together = upper_product(kernels, form, x, arrays, exact=exact)
    for i in range(len(x)):
        row, flag = x[i : i + 1].copy(), exact[i : i + 1].copy()
        alone = upper_product(kernels, form, row, arrays, exact=flag)
        assert np.array_equal(alone[0], together[i])


@pytest.mark.parametrize("shape", [*SHAPES, _LONG])
@every_format
def test_outputs_that_are_computed_again_have_the_bits_of_a_flagged_row(
    kernels: Kernels, form: MatrixFormat, shape: tuple[int, int]
) -> None:
    arrays, _ = matrix(form, *shape)
    x = np.random.default_rng(7).normal(size=(6, shape[1])).astype(np.float32)
    exact = upper_product(kernels, form, x, arrays)
    coarse = upper_product(kernels, form, x, arrays, exact=np.zeros(6, np.int32))
    threshold = np.array([-np.inf, np.inf, *np.median(coarse[2:], axis=1)])
    actual = with_16_bits(kernels, form, x, arrays, threshold)
    blocks = coarse.reshape(6, -1, 16).max(axis=2) >= threshold[:, np.newaxis].astype(np.float32)
    reached = np.repeat(blocks, 16, axis=1)
    assert np.array_equal(actual, np.where(reached, exact, coarse))
    assert not np.array_equal(exact, coarse)


@every_format
def test_the_first_rows_have_the_bits_that_they_have_among_all(
    kernels: Kernels, form: MatrixFormat
) -> None:
    arrays, _ = matrix(form, 96, 512)
    x = np.random.default_rng(2).normal(size=(2, 512)).astype(np.float32)
    threshold = np.array([-np.inf, 0.5], np.float32)
    whole = refined(kernels, form, x, arrays, threshold)
    some = refined(kernels, form, x, arrays, threshold, outputs=48)
    assert np.array_equal(some, whole[:, :48])


@pytest.mark.parametrize("shape", [*SHAPES, _LONG])
@every_format
def test_refined_outputs_are_a_whole_product(
    kernels: Kernels, form: MatrixFormat, shape: tuple[int, int]
) -> None:
    arrays, values = matrix(form, *shape)
    x = np.random.default_rng(1).normal(size=(3, shape[1])).astype(np.float32)
    coarse = upper_product(kernels, form, x, arrays)
    threshold = np.array([-np.inf, np.inf, np.median(coarse[2])])
    actual = refined(kernels, form, x, arrays, threshold)
    reached = np.repeat(coarse[2].reshape(-1, 16).max(axis=1) >= threshold[2], 16)
    assert np.array_equal(actual[1], coarse[1])
    assert np.array_equal(actual[2][~reached], coarse[2][~reached])
    # Activations are half a step away at most: of 16 bits beside the upper part.
    step = np.repeat(np.abs(x).reshape(3, -1, 32).max(axis=2) / 127, 32, axis=1)
    lower = missed(form, arrays)
    bound = step @ ((np.abs(values) + lower) / 508 + lower / (2 * LOWER_STEPS[form.name])).T
    bound += 1e-4
    is_exact = np.abs(actual - x.astype(np.float64) @ values.T) < bound
    assert is_exact[0].all()
    assert is_exact[2][reached].all()


@every_format
def test_every_instruction_set_gives_the_same_bits(built: BuiltKernels, form: MatrixFormat) -> None:
    arrays, _ = matrix(form, 32, 32 * 65)
    x = np.random.default_rng(4).normal(size=(19, 32 * 65)).astype(np.float32)
    half = np.full(len(x), 2.0)
    first, *others = (refined(kernels, form, x, arrays, half) for kernels in built.values())
    assert all(np.array_equal(first, other) for other in others)
    first, *others = (with_16_bits(kernels, form, x, arrays, half) for kernels in built.values())
    assert all(np.array_equal(first, other) for other in others)


@every_format
def test_a_refined_row_has_the_same_bits_in_every_batch(
    kernels: Kernels, form: MatrixFormat
) -> None:
    arrays, _ = matrix(form, 16 * 19, 96)
    x = np.random.default_rng(5).normal(size=(8, 96)).astype(np.float32)
    threshold = np.full(8, 0.3)
    together = refined(kernels, form, x, arrays, threshold)
    for i in range(len(x)):
        alone = refined(kernels, form, x[i : i + 1].copy(), arrays, threshold[:1])
        assert np.array_equal(alone[0], together[i])


@every_format
def test_refined_outputs_are_the_sums_of_two_products(kernels: Kernels, form: MatrixFormat) -> None:
    arrays, _ = matrix(form, 16 * 3, 96)
    x = np.random.default_rng(1).normal(size=(1, 96)).astype(np.float32)
    coarse = upper_product(kernels, form, x, arrays)
    _, lower = parts(form, arrays)
    split = split_of(form)
    added = linear_quantized.evaluate((x, *lower), {"matrix_format": split.lower.name})
    actual = refined(kernels, form, x, arrays, np.array([-np.inf]))
    np.testing.assert_allclose(actual, coarse + added * split.step, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [*SHAPES, _LONG])
@pytest.mark.parametrize("flag", [0, 1])
@every_format
def test_outputs_of_8_and_of_16_bits_have_the_bits_that_they_have_alone(
    kernels: Kernels, form: MatrixFormat, shape: tuple[int, int], flag: int
) -> None:
    arrays, _ = matrix(form, *shape)
    upper, _ = parts(form, arrays)
    exact = np.array([flag], np.int32)
    x = np.random.default_rng(8).normal(size=(1, shape[1])).astype(np.float32)
    out = np.full((2, shape[0]), np.nan, np.float32)
    attrs = {"matrix_format": split_of(form).upper.name, "fine": True}
    both = kernels("linear_coarse", (x, exact, *upper), out, **attrs)
    coarse = upper_product(kernels, form, x, arrays, exact=exact)
    fine = upper_product(kernels, form, x, arrays)
    assert np.array_equal(both, np.concatenate([coarse, fine]))
