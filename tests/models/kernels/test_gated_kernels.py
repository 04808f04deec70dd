"""Gated layers under every instruction set of this machine."""

from __future__ import annotations

from math import erf, pi, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import Kernels

    Array = NDArray[Any]


def silu(x: Array) -> Array:
    """Elfwing et al., 2017."""
    result: Array = x / (1 + np.exp(-x))
    return result


def gelu_tanh(x: Array) -> Array:
    """Hendrycks and Gimpel, 2016."""
    result: Array = 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))
    return result


ACTIVATIONS = {"gated_silu": silu, "gated_gelu_tanh": gelu_tanh}


def gated(kernels: Kernels, name: str, gate: Array, up: Array) -> Array:
    return kernels(name, (gate, up), np.full_like(gate, np.nan))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 16), (3, 272), (8, 2048)])
def test_a_gate_is_the_activation_times_the_other_values(
    kernels: Kernels, name: str, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(shape[1])
    gate, up = (4 * rng.normal(size=shape).astype(np.float32) for _ in range(2))
    expected = ACTIVATIONS[name](gate.astype(np.float64)) * up
    np.testing.assert_allclose(gated(kernels, name, gate, up), expected, rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "activation"), ACTIVATIONS.items())
def test_no_input_is_too_large_or_too_small(
    kernels: Kernels, name: str, activation: Callable[[Array], Array]
) -> None:
    """Where the formula in f64 is in range, the kernel has it; far below zero that is nothing."""
    sizes = np.concatenate([np.logspace(-40, 12, 200), np.linspace(0, 100, 56)])
    gate = np.concatenate([sizes, -sizes]).astype(np.float32)[np.newaxis]
    actual = gated(kernels, name, gate, np.ones_like(gate))
    with np.errstate(over="ignore"):
        expected = activation(gate.astype(np.float64))
    np.testing.assert_allclose(actual, expected, rtol=3e-6, atol=2e-7)


def test_a_bounded_gate_is_that_of_gpt_oss(kernels: Kernels) -> None:
    """(u + 1) g sigmoid(1.702 g), with g at most 7 and u from -7 to 7."""
    rng = np.random.default_rng(5)
    gate, up = (8 * rng.normal(size=(3, 272)).astype(np.float32) for _ in range(2))
    gate[0, :4], up[0, 2:6] = (-1e30, -90, 1e30, 90), (-1e30, 1e30, -7, 7)
    out = np.full_like(gate, np.nan)
    actual = kernels("clamped_swiglu", (gate, up), out, limit=7.0, slope=1.702)
    g, u = np.minimum(gate.astype(np.float64), 7), np.clip(up.astype(np.float64), -7, 7)
    with np.errstate(over="ignore"):
        expected = (u + 1) * g / (1 + np.exp(-1.702 * g))
    np.testing.assert_allclose(actual, expected, rtol=3e-6, atol=1e-6)


def test_values_above_zero_are_squared(kernels: Kernels) -> None:
    x = 4 * np.random.default_rng(6).normal(size=(3, 272)).astype(np.float32)
    actual = kernels("squared_relu", (x,), np.full_like(x, np.nan))
    assert np.array_equal(actual, np.where(x > 0, x * x, 0))


def test_the_tanh_form_is_near_the_normal_distribution(kernels: Kernels) -> None:
    """0.5 x (1 + erf(x / sqrt(2))), which the tanh stands for: less than 5e-4 apart."""
    gate = np.linspace(-6, 6, 256, dtype=np.float32)[np.newaxis]
    exact = [0.5 * x * (1 + erf(x / sqrt(2))) for x in gate[0].tolist()]
    actual = gated(kernels, "gated_gelu_tanh", gate, np.ones_like(gate))
    assert np.abs(actual[0] - exact).max() < 5e-4
