"""Error-compensated rounding against GPTQ as its paper has it, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.calibration.compensated_rounding import (
    DAMPING,
    compensated,
    rounding_order,
    upper_factors,
)
from hearthd.baker.parameters.group_scales import best_scales
from hearthd.baker.parameters.quantization import nearest_groups
from hearthd.models.dsl.matrix_format import FORMATS, INT4

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock

    Array = NDArray[Any]

ROWS, COLUMNS = 24, 192  # six groups, and more than one panel


@pytest.fixture(scope="module")
def weight() -> Array:
    return np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)


@pytest.fixture(scope="module")
def hessian() -> Array:
    """Of correlated inputs; some of their columns are much larger."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(400, COLUMNS)) + rng.normal(size=(400, 12)) @ rng.normal(
        size=(12, COLUMNS)
    )
    inputs *= rng.lognormal(sigma=1, size=COLUMNS)
    result: Array = inputs.T @ inputs / 400
    return result


def real(block: IntegerBlock, bits: int) -> Array:
    scale = np.repeat(block.scale.astype(np.float64), 32, axis=1)
    return np.asarray((block.integers.astype(np.float64) - 2 ** (bits - 1)) * scale)


def loss(weight: Array, block: IntegerBlock, bits: int, hessian: Array) -> float:
    error = weight - real(block, bits)
    return float(np.trace(error @ hessian @ error.T))


def gptq(weight: Array, hessian: Array, scale: Array, bits: int) -> Array:
    """Algorithm 1 of Frantar et al., with scales that are given: the integers, from -2^(b - 1)."""
    left = weight.astype(np.float64).copy()
    factor = np.linalg.cholesky(np.linalg.inv(hessian)).T
    integers = np.empty_like(left)
    low = -(2 ** (bits - 1))
    for i in range(left.shape[1]):
        integers[:, i] = np.clip(np.rint(left[:, i] / scale[:, i]), low, -low - 1)
        error = (left[:, i] - integers[:, i] * scale[:, i]) / factor[i, i]
        left[:, i:] -= np.outer(error, factor[i, i:])
    return integers


@pytest.mark.parametrize("bits", [4, 5])
def test_integers_are_those_of_the_paper(weight: Array, hessian: Array, bits: int) -> None:
    block = compensated(weight, hessian, bits, descents=0)
    damped = hessian / np.mean(np.diag(hessian)) + DAMPING * np.eye(COLUMNS)
    order = rounding_order(damped)
    scale = np.repeat(block.scale, 32, axis=1)[:, order]
    expected = gptq(weight[:, order], damped[np.ix_(order, order)], scale, bits)
    np.testing.assert_array_equal(block.integers[:, order].astype(int) - 2 ** (bits - 1), expected)


@pytest.mark.parametrize("bits", [4, 5])
def test_products_change_less_than_by_rounding_each_weight(
    weight: Array, hessian: Array, bits: int
) -> None:
    damped = hessian / np.mean(np.diag(hessian)) + DAMPING * np.eye(COLUMNS)
    plain = loss(weight, nearest_groups(FORMATS[f"int{bits}-g32"], weight), bits, damped)
    once, twice = (
        loss(weight, compensated(weight, hessian, bits, descents=count), bits, damped)
        for count in (0, 2)
    )
    assert once < 0.5 * plain
    assert twice < 0.99 * once


def test_without_inputs_each_weight_is_rounded_by_itself(weight: Array) -> None:
    block = compensated(weight, np.zeros((COLUMNS, COLUMNS)), 4)
    plain = loss(weight, nearest_groups(INT4, weight), 4, np.eye(COLUMNS))
    assert loss(weight, block, 4, np.eye(COLUMNS)) <= plain


def test_the_factors_multiply_to_the_hessian(hessian: Array) -> None:
    upper, diagonal = upper_factors(hessian)
    np.testing.assert_array_equal(upper, np.triu(upper))
    np.testing.assert_allclose(np.diag(upper), 1)
    np.testing.assert_allclose((upper * diagonal) @ upper.T, hessian, atol=1e-9 * hessian.max())


def test_large_inputs_come_first_and_groups_stay_together(hessian: Array) -> None:
    order = rounding_order(hessian)
    inputs = np.diag(hessian)[order].reshape(-1, 32)
    np.testing.assert_array_equal(np.sort(order), np.arange(COLUMNS))
    assert (np.ptp(order.reshape(-1, 32) // 32, axis=1) == 0).all()
    assert (np.diff(inputs.sum(axis=1)) <= 0).all()
    assert (np.diff(inputs, axis=1) <= 0).all()


@pytest.mark.parametrize("bits", [4, 5, 6])
def test_a_scale_is_about_the_best_of_all(bits: int) -> None:
    """The best of 4000 scales of either sign, by brute force."""
    rng = np.random.default_rng(2)
    values, importance = rng.normal(size=(20, 32)), rng.uniform(0.1, 2, size=32)
    low = -(2 ** (bits - 1))

    def error(scale: Array) -> Array:
        integers = np.clip(np.rint(values / scale[:, np.newaxis]), low, -low - 1)
        missed = values - integers * scale[:, np.newaxis]
        return np.asarray((importance * missed**2).sum(axis=1))

    largest = np.abs(values).max(axis=1) / -low
    every = [error(part * largest) for part in np.linspace(-1.5, 1.5, 4000) if part]
    scales = best_scales(values.astype(np.float32), importance.astype(np.float32), bits)
    assert error(scales.astype(np.float64)).sum() < 1.05 * np.min(every, axis=0).sum()


def test_zeros_stay_zeros() -> None:
    block = compensated(np.zeros((16, 64), np.float32), np.eye(64), 4)
    np.testing.assert_array_equal(real(block, 4), 0)
