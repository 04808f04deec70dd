"""New rows of KV caches of 6 and 4 bits under every instruction set of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.models.kernels.integer_caches import GROUP, rotated, unpacked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]

# Rows of a ring, heads and their width; the new rows go to some places of it.
RINGS = {"one head": (9, 1, 512), "three heads": (20, 3, 64), "heads of 96": (7, 2, 96)}


def new_rows(name: str, bits: int) -> tuple[Array, Array, Array, Array]:
    """A ring of packed integers, its scales, places in it, and heads for them."""
    rows, heads, width = RINGS[name]
    rng = np.random.default_rng(rows)
    places = rng.permutation(rows)[:5].astype(np.int32)
    x = rng.normal(size=(5, heads, width)) * rng.uniform(1e-2, 1e3, (5, 1, 1))
    packed = rng.integers(-128, 128, (rows, heads * width * bits // 8), dtype=np.int8)
    scales = rng.uniform(size=(rows, heads * width // GROUP)).astype(np.float16)
    return packed, scales, places, x.astype(np.float32)


def written(
    kernels: Kernels, packed: Array, scales: Array, places: Array, x: Array
) -> tuple[Array, Array]:
    """The ring with the new rows."""
    inputs, bits = (places, x), packed.shape[1] // scales.shape[1] // 4
    return (
        kernels("write_packed_rows", (packed, *inputs), np.empty_like(packed), bits=bits),
        kernels("write_packed_scales", (scales, *inputs), np.empty_like(scales), bits=bits),
    )


@pytest.mark.parametrize("bits", [6, 4])
@pytest.mark.parametrize("name", RINGS)
def test_new_rows_are_the_nearest_values_to_rotated_heads(
    kernels: Kernels, name: str, bits: int
) -> None:
    packed, scales, places, x = new_rows(name, bits)
    rows, factors = written(kernels, packed, scales, places, x)
    expected = rotated(x).reshape(*factors[places].shape, GROUP)
    extreme = np.take_along_axis(expected, np.abs(expected).argmax(axis=2)[..., np.newaxis], 2)
    half = 2 ** (bits - 1)
    np.testing.assert_allclose(factors[places], extreme[..., 0] / -half, rtol=1e-3)
    steps = factors[places].astype(np.float64)[..., np.newaxis]
    # What is as large as the largest, and has the other sign, is one step too large.
    nearest = np.clip(np.rint(expected / steps), -half, half - 1) * steps
    values = unpacked(rows[places], factors[places]).reshape(expected.shape)
    between = np.abs(np.abs(expected / steps % 1) - 0.5) < 1e-4
    assert ((values == nearest) | between).all()
    assert between.mean() < 0.01
    others = np.setdiff1d(np.arange(len(packed)), places)
    assert np.array_equal(rows[others], packed[others])
    assert np.array_equal(factors[others], scales[others])


def test_a_head_of_zeros_stays_zero(kernels: Kernels) -> None:
    packed, scales, places, x = new_rows("three heads", 4)
    x[:, 1] = 0.0
    values = unpacked(*(part[places] for part in written(kernels, packed, scales, places, x)))
    assert not values.reshape(x.shape)[:, 1].any()
    assert values.any()


def test_values_that_are_not_finite_stay_in_their_head(kernels: Kernels) -> None:
    packed, scales, places, x = new_rows("three heads", 6)
    expected = written(kernels, packed, scales, places, x)
    x[0, 1, 3], x[0, 1, 4], x[1, 1, 0] = np.nan, -np.inf, np.nan
    rows, factors = written(kernels, packed, scales, places, x)
    assert np.isfinite(unpacked(rows, factors)).all()
    for got, whole in zip((rows, factors), expected, strict=True):
        heads = got.reshape(len(got), 3, -1)
        heads[places[:2], 1] = whole.reshape(heads.shape)[places[:2], 1]
        assert np.array_equal(got, whole)


@pytest.mark.parametrize("width", [64, 96])
def test_a_rotation_is_its_own_inverse(kernels: Kernels, width: int) -> None:
    x = np.random.default_rng(0).normal(size=(5, 3, width)).astype(np.float32)
    once = kernels("rotate_heads", (x,), np.empty_like(x))
    np.testing.assert_allclose(once, rotated(x), atol=1e-6)
    np.testing.assert_allclose(kernels("rotate_heads", (once,), np.empty_like(x)), x, atol=1e-6)


def test_every_instruction_set_gives_the_same_bits(built: BuiltKernels) -> None:
    for name in RINGS:
        first_rows, *other_rows = (written(one, *new_rows(name, 6)) for one in built.values())
        for rows in other_rows:
            assert all(map(np.array_equal, rows, first_rows))
