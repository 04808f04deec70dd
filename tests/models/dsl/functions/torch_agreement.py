"""A function of the DSL against one of PyTorch: value and gradients, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from hearthd.models.dsl.evaluate import evaluate
from tests.models.graphs import gradient_graph, traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional

quick = settings(deadline=None, max_examples=20)
seeds = st.integers(0, 2**32 - 1)
few = st.integers(1, 3)
axes = st.integers(-3, 2)


def agree(ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: Array) -> None:
    """Value, and the gradient of every float input under a random upstream gradient."""
    tensors = [torch.tensor(array, requires_grad=array.dtype == np.float64) for array in arrays]
    expected = theirs(*tensors)
    graph = traced(ours, arrays)
    (value,) = evaluate(graph, arrays, {})
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-10, atol=1e-10)
    upstream = np.random.default_rng(0).normal(size=value.shape)
    expected.backward(torch.tensor(upstream))
    gradients = evaluate(gradient_graph(graph), [*arrays, upstream], {})
    expected_gradients = [tensor.grad for tensor in tensors if tensor.requires_grad]
    for actual, gradient in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(actual, gradient.numpy(), rtol=1e-10, atol=1e-10)


def normal(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in shapes]
