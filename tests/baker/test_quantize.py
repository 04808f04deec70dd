"""Storage types, against ml_dtypes' scalar rounding, the definition of the error and extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from baker.quantize import NotFiniteError, int8_rows, to_bf16

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
# Rows of one magnitude, over all of f32's exponents: what a row scale must follow.
MAGNITUDES = st.integers(-149, 126).map(lambda exponent: 2.0**exponent)
UNITS = hnp.arrays(np.float32, SHAPES, elements=st.floats(-1.875, 1.875, width=32))


def bf16_by_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to nearest even in integers: the upper half of the f32, plus a carry."""
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


@given(hnp.arrays(np.float32, SHAPES, elements=st.floats(-(2.0**127), 2.0**127, width=32)))
def test_bf16_rounds_to_nearest_even(block: NDArray[np.float32]) -> None:
    stored = to_bf16(block)
    assert stored.shape == block.shape
    np.testing.assert_array_equal(stored.view(np.uint16), bf16_by_bits(block))


def test_bf16_ties_go_to_even() -> None:
    # One and three halves of the last bit above 1: both neighbours are equally near.
    block = np.array([[1 + 2**-8, 1 + 3 * 2**-8]], np.float32)
    np.testing.assert_array_equal(to_bf16(block).astype(np.float32), [[1, 1 + 2**-6]])


def check_int8(block: NDArray[np.float32]) -> None:
    quantized, scale = int8_rows(block)
    assert quantized.dtype == np.int8
    assert scale.dtype == np.float32
    assert scale.shape == (block.shape[0],)
    assert np.isfinite(scale).all()
    assert (scale > 0).all()
    assert np.abs(quantized.astype(np.int32)).max() <= 127
    restored = quantized.astype(np.float64) * scale.astype(np.float64)[:, np.newaxis]
    error = np.abs(block.astype(np.float64) - restored) / scale.astype(np.float64)[:, np.newaxis]
    # Half a step, and the rounding of w / scale in f32, which is at most 127 units large.
    assert error.max() <= 0.5 + 127 * 2.0**-23


@given(hnp.arrays(np.float32, SHAPES, elements=FINITE))
def test_int8_error_is_half_a_step(block: NDArray[np.float32]) -> None:
    check_int8(block)


@given(UNITS, MAGNITUDES)
def test_int8_error_at_every_magnitude(block: NDArray[np.float32], magnitude: float) -> None:
    check_int8((block.astype(np.float64) * magnitude).astype(np.float32))


@given(UNITS.filter(lambda block: bool((np.abs(block).max(axis=1) > 2.0**-20).all())))
def test_int8_uses_the_whole_range_of_every_row(block: NDArray[np.float32]) -> None:
    quantized, _ = int8_rows(block)
    np.testing.assert_array_equal(np.abs(quantized.astype(np.int32)).max(axis=1), 127)


def test_int8_rows_are_independent() -> None:
    block = np.array([[0, 0, 0], [127, -127, 1], [0.5, -0.25, 0]], np.float32)
    quantized, scale = int8_rows(block)
    np.testing.assert_array_equal(quantized, [[0, 0, 0], [127, -127, 1], [127, -64, 0]])
    np.testing.assert_array_equal(scale, np.array([1, 1, 0.5 / 127], np.float32))


def test_int8_extremes() -> None:
    largest = np.finfo(np.float32).max
    quantized, scale = int8_rows(np.array([[largest, -largest], [1e-45, -0.0]], np.float32))
    np.testing.assert_array_equal(quantized, [[127, -127], [0, 0]])
    np.testing.assert_array_equal(scale, np.array([largest / np.float32(127), 1], np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_is_refused_by_position(value: float) -> None:
    block = np.zeros((3, 4), np.float32)
    block[2, 1] = value
    for quantize in (to_bf16, int8_rows):
        with pytest.raises(NotFiniteError, match=r"at \(2, 1\) of the block is (nan|-?inf)"):
            quantize(block)


def test_bf16_refuses_what_would_become_infinite() -> None:
    with pytest.raises(NotFiniteError, match=r"3\.40"):
        to_bf16(np.array([[np.finfo(np.float32).max]], np.float32))
