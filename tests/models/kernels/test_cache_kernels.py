"""New rows of KV caches of int8 and f16 under every instruction set of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.models.kernels.integer_caches import quantized

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]

# Rows of a ring, heads and their width; the new rows go to some places of it.
RINGS = {"one head": (9, 1, 64), "three heads": (20, 3, 128), "a narrow head": (7, 2, 16)}


def new_rows(name: str) -> tuple[Array, Array, Array, Array]:
    """A ring of integers, its scales, places in it, and heads for them."""
    rows, heads, width = RINGS[name]
    rng = np.random.default_rng(rows)
    places = rng.permutation(rows)[:5].astype(np.int32)
    x = rng.normal(size=(5, heads, width)).astype(np.float32) * rng.uniform(1e-6, 1e3, (5, 1, 1))
    integers = rng.integers(-127, 128, (rows, heads * width), dtype=np.int8)
    scales = rng.uniform(size=(rows, heads)).astype(np.float32)
    return integers, scales, places, x.astype(np.float32)


def written(
    kernels: Kernels, integers: Array, scales: Array, places: Array, x: Array
) -> tuple[Array, Array]:
    """The ring with the new rows."""
    inputs = (places, x)
    return (
        kernels("write_int8_rows", (integers, *inputs), np.empty_like(integers)),
        kernels("write_row_scales", (scales, *inputs), np.empty_like(scales)),
    )


@pytest.mark.parametrize("name", RINGS)
def test_new_rows_are_rounded_to_their_largest_magnitude(kernels: Kernels, name: str) -> None:
    integers, scales, places, x = new_rows(name)
    expected = integers.copy(), scales.copy()
    for whole, new in zip(expected, quantized(x), strict=True):
        whole[places] = new
    for got, whole in zip(written(kernels, integers, scales, places, x), expected, strict=True):
        assert np.array_equal(got, whole)


def test_values_between_two_integers_are_rounded_to_the_even_one(kernels: Kernels) -> None:
    integers, scales, places, x = new_rows("one head")
    x[0, 0] = [-127.0, *(step + 0.5 for step in range(-32, 31))]
    rows, factors = written(kernels, integers, scales, places, x)
    assert np.array_equal(rows[places[0]], np.rint(x[0, 0]))
    assert factors[places[0], 0] == np.float32(127) * np.float32(1 / 127)


def test_a_head_of_zeros_stays_zero(kernels: Kernels) -> None:
    integers, scales, places, x = new_rows("three heads")
    x[:, 1] = 0.0
    rows, factors = written(kernels, integers, scales, places, x)
    values = rows[places].reshape(x.shape) * factors[places][..., np.newaxis]
    assert not values[:, 1].any()
    assert np.isfinite(values).all()


def test_values_that_are_not_finite_stay_in_their_head(kernels: Kernels) -> None:
    integers, scales, places, x = new_rows("three heads")
    expected = written(kernels, integers, scales, places, x)
    x[0, 1, 3], x[0, 1, 4] = np.nan, -np.inf
    rows, factors = written(kernels, integers, scales, places, x)
    width = x.shape[2]
    assert rows[places[0], width + 3] == 0
    assert rows[places[0], width + 4] == -127
    assert np.isfinite(factors).all()
    rows[places[0], width : 2 * width] = expected[0][places[0], width : 2 * width]
    factors[places[0], 1] = expected[1][places[0], 1]
    assert np.array_equal(rows, expected[0])
    assert np.array_equal(factors, expected[1])


def test_every_instruction_set_gives_the_same_bits(built: BuiltKernels) -> None:
    for name in RINGS:
        first_rows, *other_rows = (written(one, *new_rows(name)) for one in built.values())
        for rows in other_rows:
            assert all(map(np.array_equal, rows, first_rows))


# --- caches of f16


@pytest.mark.parametrize("rows", [(0, 5), (1, 4), (4, 5)])
@pytest.mark.parametrize("heads", [(0, 3), (1, 2)])
def test_new_rows_of_f16_are_rounded_as_numpy_rounds(
    kernels: Kernels, rows: tuple[int, int], heads: tuple[int, int]
) -> None:
    rng = np.random.default_rng(rows[0])
    x = (rng.normal(size=(5, 3, 48)) * 10.0 ** rng.integers(-9, 5, (5, 3, 48))).astype(np.float32)
    ring = rng.normal(size=(9, (heads[1] - heads[0]) * 48)).astype(np.float16)
    places = rng.permutation(9)[: rows[1] - rows[0]].astype(np.int32)
    expected = ring.copy()
    expected[places] = x[slice(*rows), slice(*heads)].reshape(len(places), -1).astype(np.float16)
    actual = kernels(
        "write_f16_rows", (ring, places, x), np.empty_like(ring), rows=rows, heads=heads
    )
    assert actual.tobytes() == expected.tobytes()


def test_the_largest_f16_bounds_a_row_and_nan_stays(kernels: Kernels) -> None:
    ring, places = np.zeros((2, 16), np.float16), np.array([1], np.int32)
    x = np.zeros((1, 1, 16), np.float32)
    x[0, 0, :6] = [65519, 65520, np.inf, -1e30, np.nan, -np.inf]
    written = kernels(
        "write_f16_rows", (ring, places, x), np.empty_like(ring), rows=(0, 1), heads=(0, 1)
    )
    expected = [65504, 65504, 65504, -65504, np.nan, -65504, *[0] * 10]
    np.testing.assert_array_equal(written[1], expected)
    assert not written[0].any()
