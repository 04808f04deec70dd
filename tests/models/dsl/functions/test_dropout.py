"""Dropout: how many elements, which, and the gradient of those that are left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DslError, DType, TensorType, TypeRuleError
from hearthd.models.dsl.value_and_grad import value_and_grad
from hearthd.models.lora.training import Lora

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor

    Array = NDArray[Any]

SHAPE = (96, 130)
SEED = TensorType((), DType.I32)


def dropped(x: Array, *, seed: int = 1, rate: float = 0.25, stream: int = 0) -> Array:
    graph = trace(
        "dropout",
        lambda x, seed: (f.dropout(x, seed, rate=rate, stream=stream),),
        {"x": TensorType(x.shape, DType.F32), "seed": SEED},
    )
    (y,) = evaluate(graph, [x, np.array(seed, np.int32)], {})
    return y


def kept(**options: Any) -> Array:
    return dropped(np.ones(SHAPE, np.float32), **options) > 0


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.25, 0.9])
def test_the_share_of_elements_is_dropped_and_the_others_grow(rate: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=SHAPE).astype(np.float32)
    y = dropped(x, rate=rate)
    count = np.count_nonzero(y)
    assert abs(count - x.size * (1 - rate)) <= 5 * np.sqrt(x.size * rate * (1 - rate))
    np.testing.assert_allclose(y[y != 0], x[y != 0] / (1 - rate), rtol=1e-6)


def test_seeds_streams_rows_and_neighbors_are_independent() -> None:
    mask = kept()
    assert np.array_equal(mask, kept())
    # Two independent masks agree in 0.75^2 + 0.25^2 of all elements.
    others = [kept(seed=2), kept(seed=-(2**31)), kept(stream=1), kept(seed=1, stream=2)]
    others += [np.roll(mask, 1, axis=0), np.roll(mask, 1, axis=1), np.roll(mask, 64, axis=1)]
    for other in others:
        agreeing = np.count_nonzero(mask == other)
        assert abs(agreeing - 0.625 * mask.size) <= 5 * np.sqrt(mask.size * 0.625 * 0.375)


def test_the_gradient_is_that_of_the_elements_that_are_left() -> None:
    def loss(x: Tensor, weights: Tensor, seed: Tensor) -> tuple[Tensor, ...]:
        def weighted() -> Tensor:
            y = f.dropout(x, seed, rate=0.25, stream=3)
            return f.mean(y * y * weights, 0, 1)

        value, (gradient,) = value_and_grad(weighted, by=(x,))
        return value, gradient

    rng = np.random.default_rng(1)
    x, weights = rng.normal(size=(2, *SHAPE)).astype(np.float32)
    type_ = TensorType(SHAPE, DType.F32)
    graph = trace("loss", loss, {"x": type_, "weights": type_, "seed": SEED})
    _, gradient = evaluate(graph, [x, weights, np.array(7, np.int32)], {})
    scale = kept(seed=7, stream=3) / 0.75
    np.testing.assert_allclose(gradient, 2 * weights * x * scale**2 / x.size, rtol=1e-5)


def test_a_rate_or_seed_out_of_range_is_rejected() -> None:
    for rate in (-0.1, 1.0):
        with pytest.raises(TypeRuleError, match="a rate of at least 0 and below 1"):
            kept(rate=rate)
    with pytest.raises(DslError, match="dropout: expected at least 0 and below 1, got"):
        Lora(rank=1, alpha=1.0, dropout=1.0)
