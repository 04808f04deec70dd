"""Storage types, against ml_dtypes' scalar rounding, the definition of the error and extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hearthd.baker.parameters.quantization import (
    NotFiniteError,
    encoded,
    int8_groups,
    int12_groups,
    to_bf16,
)
from hearthd.models.dsl.matrix_format import INT8, INT12
from hearthd.models.dsl.storage import STORAGES, Storage
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9)
# Rows of one magnitude, over all of f32's exponents: what a row scale must follow.
MAGNITUDES = st.integers(-149, 126).map(lambda exponent: 2.0**exponent)


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
    # One and three halves of the last bit above 1: both neighbors are equally near.
    block = np.array([[1 + 2**-8, 1 + 3 * 2**-8]], np.float32)
    np.testing.assert_array_equal(to_bf16(block).astype(np.float32), [[1, 1 + 2**-6]])


def restored_groups(block: NDArray[np.float32]) -> NDArray[np.float32]:
    return real_weights(encoded(STORAGES["int8-g32"], block), INT8)


@pytest.mark.parametrize("quantization", ["Q8_0", "Q5_0"])
def test_groups_keep_the_values_of_gguf_blocks_exactly(quantization: str) -> None:
    """Blocks that llama.cpp's format quantized have the same bits after a round trip."""
    block = np.random.default_rng(0).normal(size=(32, 96)).astype(np.float32)
    block[3, 32:64] = 0
    stored = gguf.quants.quantize(block, gguf.GGMLQuantizationType[quantization])
    values = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[quantization])
    assert len(np.unique(values)) > 500
    np.testing.assert_array_equal(restored_groups(values), values)


def test_the_upper_bits_of_each_group_approximate_it() -> None:
    """An output head reads the lower four bits of few rows alone."""
    block = np.random.default_rng(0).normal(size=(32, 96)).astype(np.float32)
    for quantization in (gguf.GGMLQuantizationType.Q5_0, gguf.GGMLQuantizationType.Q4_0):
        values = gguf.quants.dequantize(gguf.quants.quantize(block, quantization), quantization)
        integers = int8_groups(values).integers.reshape(-1, 32)
        assert np.abs(integers).max(axis=1).min() >= 60


@given(MAGNITUDES.filter(lambda size: 2.0**-6 <= size <= 2.0**15), st.integers(0, 99))
def test_groups_round_to_half_a_step(magnitude: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    block = (rng.normal(size=(16, 64)) * magnitude).astype(np.float32)
    largest = np.abs(block).reshape(16, 2, 32).max(axis=2)
    error = np.abs(restored_groups(block) - block).reshape(16, 2, 32).max(axis=2)
    # Half a step, and what an f16 scale adds to the largest values: 2^-11 of them.
    assert (error <= largest * (0.5 / 127 + 2.0**-11)).all()


@pytest.mark.parametrize(("quantization", "left"), [("Q4_1", 0.3), ("Q4_0", 0.3)])
def test_groups_approximate_four_bit_blocks(quantization: str, left: float) -> None:
    """Compare the squared error with the error of the scale max |w| / 127."""
    block = np.random.default_rng(0).normal(size=(32, 96)).astype(np.float32)
    stored = gguf.quants.quantize(block, gguf.GGMLQuantizationType[quantization])
    values = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[quantization])
    groups = values.reshape(32, 3, 32)
    scale = (np.abs(groups).max(axis=2, keepdims=True) / 127).astype(np.float16)
    plain = np.rint(groups / scale) * scale - groups
    assert ((restored_groups(values) - values) ** 2).sum() < left * (plain**2).sum()


@pytest.mark.parametrize("steps", [127, 126, 97, 65, 64])
def test_groups_find_every_lattice_of_64_to_127_steps(steps: int) -> None:
    """Values on the multiples of max |w| / steps are kept as they are."""
    integers = np.random.default_rng(steps).integers(-steps, steps + 1, size=(16, 64))
    integers[:, ::32] = steps
    block = (integers * 2.0**-6).astype(np.float32)  # a scale that f16 has exactly
    np.testing.assert_array_equal(restored_groups(block), block)


def test_steps_whose_scale_f16_cannot_hold_are_not_chosen() -> None:
    """The largest magnitude divided by 64 is infinite in f16, divided by 100 it is not."""
    integers = np.random.default_rng(0).integers(-100, 101, size=(16, 32))
    integers[:, 0] = 100
    block = (integers * 42016.0).astype(np.float32)
    np.testing.assert_array_equal(restored_groups(block), block)


@pytest.mark.parametrize("type_", ["Q4_1", "Q5_0", "F32"])
def test_groups_are_quantized_alike_in_parts(monkeypatch: pytest.MonkeyPatch, type_: str) -> None:
    """With a lattice, with exact scales, and with neither."""
    block = np.random.default_rng(0).normal(size=(32, 96)).astype(np.float32)
    quantization = gguf.GGMLQuantizationType[type_]
    block = gguf.quants.dequantize(gguf.quants.quantize(block, quantization), quantization)
    whole = int8_groups(block)
    monkeypatch.setattr("hearthd.baker.parameters.quantization._TILE", 7)
    parts = int8_groups(block)
    np.testing.assert_array_equal(parts.integers, whole.integers)
    np.testing.assert_array_equal(parts.scale, whole.scale)


def test_groups_are_stored_in_the_order_of_their_kernel() -> None:
    """Row r, column c of the matrix: block r / 16, group c / 32, quad c % 32 / 4, then the row."""
    block = np.arange(32 * 64, dtype=np.float32).reshape(32, 64) % 127
    block[:, ::32] = 127  # so that every scale is 1
    weight, scale = encoded(STORAGES["int8-g32"], block)
    assert weight.shape == (2, 2, 8, 64)
    assert scale.shape == (2, 2, 16)
    assert weight[1, 0, 7, 5 * 4 + 2] == block[16 + 5, 7 * 4 + 2]
    assert weight[0, 1, 3, 11 * 4 + 1] == block[11, 32 + 3 * 4 + 1]
    assert (scale == 1).all()


@given(MAGNITUDES.filter(lambda size: 2.0**-30 <= size <= 2.0**15), st.integers(0, 99))
def test_twelve_bits_round_to_half_a_step(magnitude: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    block = (rng.normal(size=(16, 64)) * magnitude).astype(np.float32)
    block[3, 32:] = 0
    values = real_weights(encoded(STORAGES["int12-g32"], block), INT12)
    groups = np.abs(block).reshape(16, 2, 32)
    # The next f16 after max |w| * 16 / 2039: 2^-10 of it, or 2^-24 below the normal ones.
    exact = groups.max(axis=2) * (16 / 2039)
    scale = np.maximum(exact * (1 + 2.0**-10), exact + 2.0**-24)
    error = np.abs(values - block).reshape(16, 2, 32).max(axis=2)
    assert (error <= scale / 32 * (1 + 2.0**-20)).all()
    assert not values[3, 32:].any()


def test_the_upper_eight_bits_of_twelve_are_the_nearest_to_a_weight() -> None:
    block = np.random.default_rng(0).normal(size=(32, 96)).astype(np.float32)
    _, high, scale = encoded(STORAGES["int12-g32"], block)
    steps = np.repeat(scale.transpose(0, 2, 1).reshape(32, 3), 32, axis=1).astype(np.float32)
    # Half of what the upper eight bits miss at most, and half a step of all twelve.
    assert (
        np.abs(real_weights((high, scale), INT8) - block) <= steps * (1 / 2 + 1 / 32) * 1.001
    ).all()
    assert np.abs(high.astype(int)).max() == 127


@pytest.mark.parametrize("quantize", [int8_groups, int12_groups])
def test_groups_too_large_for_their_scale_are_rejected(
    quantize: Callable[[NDArray[np.float32]], object],
) -> None:
    block = np.zeros((16, 32), np.float32)
    block[2, 5] = 1e8
    with pytest.raises(NotFiniteError, match=r"at \(2, 0\) of the block is 100000000"):
        quantize(block)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_error_names_the_position_of_a_non_finite_value(value: float) -> None:
    block = np.zeros((16, 32), np.float32)
    block[2, 1] = value
    for quantize in (to_bf16, int8_groups, int12_groups):
        with pytest.raises(NotFiniteError, match=r"at \(2, 1\) of the block is (nan|-?inf)"):
            quantize(block)


def test_bf16_rejects_values_that_would_become_infinite() -> None:
    with pytest.raises(NotFiniteError, match=r"3\.40"):
        to_bf16(np.array([[np.finfo(np.float32).max]], np.float32))


@pytest.mark.parametrize(
    "storage",
    [one.table for name, one in STORAGES.items() if name in ("int6-g16", "int8-g32", "int12-g32")],
    ids=lambda one: one.name,
)
def test_a_table_with_any_number_of_rows_is_filled_with_its_last_row(storage: Storage) -> None:
    table = np.random.default_rng(0).normal(size=(19, 32)).astype(np.float32)
    filled = np.concatenate([table, np.repeat(table[-1:], 13, axis=0)])
    for array, expected in zip(encoded(storage, table), encoded(storage, filled), strict=True):
        np.testing.assert_array_equal(array, expected)
