"""The kernels of a router under every instruction set of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import functions as f

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import Kernels

    Array = NDArray[Any]


def top_indices(kernels: Kernels, x: Array, count: int) -> Array:
    return kernels("top_indices", (x,), np.full((len(x), count), -1, np.int32), count=count)


@pytest.mark.parametrize(
    ("rows", "extent", "count"),
    [(1, 4, 2), (3, 16, 16), (9, 60, 4), (2, 128, 8), (40, 37, 6), (1, 4096, 32)],
)
def test_the_largest_elements_come_first_and_of_equal_ones_the_first(
    kernels: Kernels, rows: int, extent: int, count: int
) -> None:
    """As a stable sort has them. Rounded elements have many ties, and zeros of both signs."""
    x = np.random.default_rng(extent).normal(size=(rows, extent)).astype(np.float32)
    for row in (x, np.rint(x), np.where(x > 0.5, -np.inf, np.rint(x)), np.zeros_like(x)):
        expected = np.argsort(-row, axis=1, kind="stable")[:, :count]
        assert np.array_equal(top_indices(kernels, row.astype(np.float32), count), expected)


def test_each_index_exists_beside_nan(kernels: Kernels) -> None:
    x = np.full((3, 20), np.nan, np.float32)
    x[1, :5] = -np.nan
    x[2] = np.frombuffer(b"\xff" * 80, np.float32)  # of all bits, the lowest in the kernel's order
    indices = top_indices(kernels, x, 20)
    assert np.all((indices >= 0) & (indices < 20))
    assert np.array_equal(np.sort(indices[:2]), np.tile(np.arange(20), (2, 1)))


def factors(logits: Array, chosen: Array, scores: str) -> Array:
    """The softmax of all, the sigmoid, or the softmax of the chosen, in f64."""
    wide = logits.astype(np.float64)
    if scores == f.CHOSEN:
        wide = np.take_along_axis(wide, chosen, 1)
    if scores != f.SIGMOID:
        powers = np.exp(wide - wide.max(1, keepdims=True))
        every = powers / powers.sum(1, keepdims=True)
    else:
        every = 1 / (1 + np.exp(-wide))
    return every if scores == f.CHOSEN else np.take_along_axis(every, chosen, 1)


@pytest.mark.parametrize("scores", f.SCORES)
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(("rows", "experts", "count"), [(1, 4, 4), (11, 37, 3), (2, 128, 20)])
def test_factors_of_experts(
    kernels: Kernels, scores: str, normalized: bool, rows: int, experts: int, count: int
) -> None:
    rng = np.random.default_rng(experts)
    logits = 4 * rng.normal(size=(rows, experts)).astype(np.float32)
    logits[0, :2] = 90, -90
    order = rng.permuted(np.tile(np.arange(experts), (rows, 1)), axis=1)
    chosen, scale = order[:, :count].astype(np.int32), rng.normal(size=experts).astype(np.float32)
    expected = factors(logits, chosen, scores)
    if normalized:
        expected /= expected.sum(1, keepdims=True) + 0.25
    attrs = {"scores": scores, "normalized": normalized, "sum_offset": 0.25, "min_sum": 1e-6}
    for more, times in (((), 1.0), ((scale,), scale[chosen])):
        out = np.full(chosen.shape, np.nan, np.float32)
        actual = kernels("expert_factors", (logits, chosen, *more), out, **attrs, factor=2.5)
        np.testing.assert_allclose(actual, expected * 2.5 * times, rtol=5e-6, atol=1e-9)


def test_the_sum_of_scores_has_a_smallest_value(kernels: Kernels) -> None:
    logits, chosen = np.full((1, 3), -50, np.float32), np.array([[2, 0]], np.int32)
    attrs = {"scores": f.SIGMOID, "normalized": True, "sum_offset": 0.0, "min_sum": 0.5}
    out = np.full((1, 2), np.nan, np.float32)
    actual = kernels("expert_factors", (logits, chosen), out, **attrs, factor=1.0)
    np.testing.assert_allclose(actual, np.full((1, 2), 2 * np.exp(-50)), rtol=5e-6)


def test_an_expert_that_does_not_exist_is_read_as_one_that_does(kernels: Kernels) -> None:
    logits = np.array([[1, 2, 3]], np.float32)
    chosen = np.array([[-5, 3, 2**31 - 1]], np.int32)
    attrs = {"scores": f.SIGMOID, "normalized": False, "sum_offset": 0.0, "min_sum": 0.0}
    actual = kernels(
        "expert_factors", (logits, chosen), np.empty((1, 3), np.float32), **attrs, factor=1.0
    )
    np.testing.assert_allclose(actual, 1 / (1 + np.exp(-logits[:, [0, 2, 2]])), rtol=5e-6)


@pytest.mark.parametrize(("rows", "count", "columns"), [(1, 8, 2048), (7, 3, 272), (30, 1, 16)])
def test_results_of_experts_are_added_times_their_factors(
    kernels: Kernels, rows: int, count: int, columns: int
) -> None:
    rng = np.random.default_rng(columns)
    y = rng.normal(size=(rows * count, columns)).astype(np.float32)
    weights = rng.normal(size=(rows, count)).astype(np.float32)
    out = np.full((rows, columns), np.nan, np.float32)
    actual = kernels("expert_sum", (y, weights), out)
    expected = np.einsum("nce,nc->ne", y.reshape(rows, count, -1).astype(np.float64), weights)
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)
    one = kernels("expert_sum", (y[:count], weights[:1]), out[:1].copy())
    assert np.array_equal(one, actual[:1])


@pytest.mark.parametrize(("rows", "experts", "columns"), [(1, 4, 21), (7, 60, 64), (32, 128, 80)])
def test_logits_of_experts_are_products_in_f32(
    kernels: Kernels, rows: int, experts: int, columns: int
) -> None:
    """A row has the same bits alone: drafted tokens are sent to the experts of a plain decode."""
    rng = np.random.default_rng(experts)
    x, weight = (rng.normal(size=(n, columns)).astype(np.float32) for n in (rows, experts))
    out = np.full((rows, experts), np.nan, np.float32)
    actual = kernels("router_logits", (x, weight), out)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)
    for row in range(rows):
        one = kernels("router_logits", (x[row : row + 1].copy(), weight), out[:1].copy())
        assert np.array_equal(one[0], actual[row])
