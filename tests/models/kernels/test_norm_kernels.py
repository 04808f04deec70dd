"""The kernels of norms and of rotary embeddings, against the formulas in f64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]


EPS = 1e-3


def normalized(x: Array, weight: Array) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich, 2019) in f64, over the last axis."""
    x = x.astype(np.float64)
    return np.asarray(x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + EPS) * weight)


def stream(rows: int) -> tuple[Array, ...]:
    """h, y, the weight of the norm after and of the one before; the last row of y is zeros."""
    rng = np.random.default_rng(5)
    h, y = rng.normal(size=(2, rows, 80)).astype(np.float32)
    y[-1] = 0
    return h, y, *rng.uniform(0.5, 2, size=(2, 80)).astype(np.float32)


def added(kernels: Kernels, inputs: tuple[Array, ...]) -> Array:
    out = np.full((2, *inputs[0].shape), np.nan, np.float32)
    return kernels("residual_norm", inputs, out, eps=EPS)


def test_a_residual_is_added_and_normalized(kernels: Kernels) -> None:
    h, y, after, before = stream(5)
    total = h + normalized(y, after)
    actual = added(kernels, (h, y, after, before))
    np.testing.assert_allclose(actual, [total, normalized(total, before)], atol=2e-6)


def test_a_row_of_a_residual_has_the_same_bits_alone(kernels: Kernels) -> None:
    h, y, *weights = stream(5)
    together = added(kernels, (h, y, *weights))
    for i in range(5):
        alone = added(kernels, (h[i : i + 1], y[i : i + 1], *weights))
        assert np.array_equal(alone[:, 0], together[:, i])


@pytest.mark.parametrize("scale", [1.0, 0.22])
def test_a_sum_is_normalized(kernels: Kernels, scale: float) -> None:
    h, y, _, before = stream(5)
    out = np.full((2, *h.shape), np.nan, np.float32)
    actual = kernels("add_norm", (h, y, before), out, scale=scale, eps=EPS)
    total = h + scale * y.astype(np.float64)
    np.testing.assert_allclose(actual, [total, normalized(total, before)], atol=2e-6)
    for i in range(5):
        alone = np.full((2, 1, h.shape[1]), np.nan, np.float32)
        kernels("add_norm", (h[i : i + 1], y[i : i + 1], before), alone, scale=scale, eps=EPS)
        assert np.array_equal(alone[:, 0], actual[:, i])


@pytest.mark.parametrize("groups", [1, 3])
def test_groups_of_columns_are_normalized(kernels: Kernels, groups: int) -> None:
    rng = np.random.default_rng(7)
    x, weight = rng.normal(size=(5, 240)).astype(np.float32), rng.uniform(0.5, 2, 240)
    inputs = (x, weight.astype(np.float32))
    actual = kernels("grouped_rms_norm", inputs, np.full_like(x, np.nan), groups=groups, eps=EPS)
    parts = normalized(x.reshape(5, groups, -1), np.ones(240 // groups))
    np.testing.assert_allclose(actual, parts.reshape(5, 240) * weight, rtol=2e-6)


def test_the_outputs_of_heads_are_normalized_and_gated(kernels: Kernels) -> None:
    rng = np.random.default_rng(8)
    gate, x = rng.normal(size=(2, 5, 7, 48)).astype(np.float32)
    weight = rng.uniform(0.5, 2, 48).astype(np.float32)
    actual = kernels("gated_norm", (gate, x, weight), np.full_like(x, np.nan), eps=EPS)
    expected = gate / (1 + np.exp(-gate.astype(np.float64))) * normalized(x, weight)
    np.testing.assert_allclose(actual, expected, rtol=3e-6, atol=1e-7)
    alone = np.full_like(x[:1], np.nan)
    for i in range(5):
        row = slice(i, i + 1)
        kernels("gated_norm", (gate[row], x[row], weight), alone, eps=EPS)
        assert np.array_equal(alone, actual[row])


def heads(rows: int) -> tuple[Array, ...]:
    """Heads, the weight of their norm, cosines and sines."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(rows, 5, 96)).astype(np.float32)
    angles = rng.uniform(0, 100, size=(rows, 48)).astype(np.float32)
    return x, rng.uniform(0.5, 2, size=96).astype(np.float32), np.cos(angles), np.sin(angles)


def turned_pairs(x: Array, cosine: Array, sine: Array) -> Array:
    """The first columns of heads as complex numbers that are turned, and the other columns."""
    half = cosine.shape[1]
    pairs = x[..., :half].astype(np.float64) + 1j * x[..., half : 2 * half]
    turned = pairs * (cosine + 1j * sine)[:, np.newaxis]
    return np.concatenate([turned.real, turned.imag, x[..., 2 * half :]], axis=2)


def rotated(
    kernels: Kernels, inputs: tuple[Array, ...], chosen: tuple[int, int, int] = (0, 5, 1)
) -> Array:
    rows, _, width = inputs[0].shape
    out = np.full((rows, len(range(*chosen)), width), np.nan, np.float32)
    if len(inputs) == 3:
        return kernels("rope", inputs, out, heads=chosen)
    return kernels("norm_rope", inputs, out, heads=chosen, eps=EPS)


@pytest.mark.parametrize("half", [48, 32, 16])
def test_heads_are_normalized_and_then_rotated_as_complex_numbers(
    kernels: Kernels, half: int
) -> None:
    x, weight, cosine, sine = heads(5)
    table = cosine[:, :half].copy(), sine[:, :half].copy()
    actual = rotated(kernels, (x, weight, *table))
    np.testing.assert_allclose(actual, turned_pairs(normalized(x, weight), *table), atol=2e-6)


@pytest.mark.parametrize(("chosen", "half"), [((0, 5, 1), 48), ((1, 2, 1), 48), ((0, 4, 2), 16)])
def test_heads_are_rotated_without_a_norm(
    kernels: Kernels, chosen: tuple[int, int, int], half: int
) -> None:
    x, _, cosine, sine = heads(5)
    table = cosine[:, :half].copy(), sine[:, :half].copy()
    actual = rotated(kernels, (x, *table), chosen)
    expected = turned_pairs(x[:, slice(*chosen)], *table)
    np.testing.assert_allclose(actual, expected, atol=2e-6)
    for i in range(5):
        row = slice(i, i + 1)
        alone = rotated(kernels, (x[row], *(part[row] for part in table)), chosen)
        assert np.array_equal(alone[0], actual[i])


@pytest.mark.parametrize("chosen", [(0, 1, 1), (1, 3, 1), (2, 5, 1), (1, 5, 2), (0, 5, 3)])
def test_some_heads_are_rotated_as_all_are(kernels: Kernels, chosen: tuple[int, int, int]) -> None:
    inputs = heads(2)
    expected = rotated(kernels, inputs)[:, slice(*chosen)]
    assert np.array_equal(rotated(kernels, inputs, chosen), expected)


def test_a_token_is_rotated_with_the_same_bits_alone(kernels: Kernels) -> None:
    x, weight, cosine, sine = heads(5)
    together = rotated(kernels, (x, weight, cosine, sine))
    for i in range(5):
        row = slice(i, i + 1)
        alone = rotated(kernels, (x[row], weight, cosine[row], sine[row]))
        assert np.array_equal(alone[0], together[i])


@pytest.mark.parametrize("chosen", [(0, 7, 1), (1, 7, 2)])
def test_heads_of_attention_are_gated(kernels: Kernels, chosen: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(9)
    gate = 4 * rng.normal(size=(5, 7, 48)).astype(np.float32)
    x = rng.normal(size=(5, len(range(*chosen)), 48)).astype(np.float32)
    actual = kernels("gated_heads", (gate, x), np.full_like(x, np.nan), heads=chosen)
    expected = x / (1 + np.exp(-gate[:, slice(*chosen)].astype(np.float64)))
    np.testing.assert_allclose(actual, expected, rtol=3e-6, atol=1e-7)
    alone = np.full_like(x[:1], np.nan)
    for i in range(5):
        row = slice(i, i + 1)
        kernels("gated_heads", (gate[row], x[row]), alone, heads=chosen)
        assert np.array_equal(alone, actual[row])


def test_every_instruction_set_gives_the_same_bits(built: BuiltKernels) -> None:
    sums = [added(kernels, stream(3)) for kernels in built.values()]
    turned = [rotated(kernels, heads(3)) for kernels in built.values()]
    for first, *others in (sums, turned):
        assert all(np.array_equal(first, other) for other in others)
