"""Losses and optimizers against PyTorch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.optimizers import Adam, Sgd, WarmupCosine
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType
from hearthd.models.dsl.value_and_grad import value_and_grad
from tests.models.dsl.test_training import OPTIMIZERS, update_graph
from tests.models.graphs import type_of

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

torch = pytest.importorskip("torch", reason="torch is not installed")


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 9), seeds)
def test_cross_entropy_and_its_gradient(rows: int, classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = 5 * rng.normal(size=(rows, classes))
    targets = rng.integers(0, classes, size=rows, dtype=np.int32)
    x = torch.tensor(logits, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(x, torch.tensor(targets, dtype=torch.int64))
    loss.backward()

    def function(x: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        value, parts = value_and_grad(lambda x: f.cross_entropy(x, targets), x)
        return (value, *parts)

    graph = trace("loss", function, {"x": type_of(logits), "targets": type_of(targets)})
    value, gradient = evaluate(graph, [logits, targets], {})
    np.testing.assert_allclose(value, loss.item(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-11, atol=1e-14)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=3), seeds)
def test_mean_squared_error_and_its_gradient(shape: list[int], seed: int) -> None:
    arrays = np.random.default_rng(seed).normal(size=(2, *shape))
    x, target = (torch.tensor(array, requires_grad=True) for array in arrays)
    loss = torch.nn.functional.mse_loss(x, target)
    loss.backward()

    def function(x: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        value, parts = value_and_grad(f.mean_squared_error, x, target)
        return (value, *parts)

    graph = trace("loss", function, {"x": type_of(arrays[0]), "target": type_of(arrays[1])})
    value, *gradients = evaluate(graph, list(arrays), {})
    np.testing.assert_allclose(value, loss.item(), rtol=1e-12)
    for actual, expected in zip(gradients, (x, target), strict=True):
        np.testing.assert_allclose(actual, expected.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "adamw"])
def test_optimizers(name: str) -> None:
    """Ten steps in float64, on gradients that PyTorch's optimizer is given too."""
    rng = np.random.default_rng(4)
    graph = update_graph(OPTIMIZERS[name], {"w": (3, 2)}, DType.F64)
    weight = rng.normal(size=(3, 2))
    state = [np.zeros(x.shape, x.dtype.numpy) for x in graph.inputs[2:]]
    w = torch.nn.Parameter(torch.tensor(weight))
    other = torch_optimizer(name, w)
    for _ in range(10):
        gradient = rng.normal(size=(3, 2))
        weight, *state = evaluate(graph, [weight, gradient, *state], {})
        w.grad = torch.tensor(gradient)
        other.step()
        np.testing.assert_allclose(weight, w.detach().numpy(), rtol=1e-12)


def torch_optimizer(name: str, w: Any) -> Any:
    optimizer = OPTIMIZERS[name]
    if isinstance(optimizer, Sgd):
        return torch.optim.SGD([w], lr=optimizer.rate, momentum=optimizer.momentum)
    assert isinstance(optimizer, Adam)
    return torch.optim.Adam(
        [w], lr=optimizer.rate, betas=(optimizer.beta1, optimizer.beta2), eps=optimizer.eps
    )


def test_adamw_with_warmup_cosine_decay_and_clipping() -> None:
    """50 steps in float32 of two weights: 1e-5 of PyTorch's optimizer, schedulers and clipping."""
    rng = np.random.default_rng(5)
    shapes = {"a": (4, 3), "b": (5,)}
    schedule = WarmupCosine(peak=0.05, warmup=5, total=50)
    adamw = Adam(rate=schedule, beta2=0.99, decay=0.1, max_norm=2.0)
    graph = update_graph(adamw, shapes, DType.F32)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in shapes.values()]
    state = [np.zeros(x.shape, x.dtype.numpy) for x in graph.inputs[2 * len(shapes) :]]
    torch_weights = [torch.nn.Parameter(torch.tensor(weight)) for weight in weights]
    other = torch.optim.AdamW(torch_weights, lr=schedule.peak, betas=(0.9, 0.99), weight_decay=0.1)
    schedulers = torch.optim.lr_scheduler
    rising = schedulers.LinearLR(other, start_factor=1 / schedule.warmup, total_iters=4)
    falling = schedulers.CosineAnnealingLR(other, T_max=schedule.total - schedule.warmup)
    both = schedulers.SequentialLR(other, [rising, falling], milestones=[schedule.warmup])
    clipped_steps = 0
    for _ in range(schedule.total):
        scale = 2 * rng.random()
        gradients = [(scale * rng.normal(size=w.shape)).astype(np.float32) for w in weights]
        results = evaluate(graph, [*weights, *gradients, *state], {})
        weights, state = results[: len(shapes)], results[len(shapes) :]
        for weight, gradient in zip(torch_weights, gradients, strict=True):
            weight.grad = torch.tensor(gradient)
        norm = torch.nn.utils.clip_grad_norm_(torch_weights, adamw.max_norm)
        clipped_steps += bool(norm > adamw.max_norm)
        other.step()
        both.step()
        for actual, expected in zip(weights, torch_weights, strict=True):
            np.testing.assert_allclose(actual, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert 0 < clipped_steps < schedule.total
