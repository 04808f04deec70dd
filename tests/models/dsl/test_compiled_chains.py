"""Compiled chains of kernels compute what their graphs say, where chains may get that wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import fused, ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.mlir.chains.segments import chain_dispatches
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from tests.models.compiled import compiled_fixture

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.graph import Graph, Tensor
    from tests.models.compiled import Compiled

WIDTH = 64


def read_outside(h: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Parts of a result that another kernel, the compiler and the caller read."""
    total, normed = (f.at(fused.add_norm(h, y, weight, eps=1e-3), i) for i in (0, 1))
    gated = fused.gated_silu(normed, total)
    return gated, total * 2.0, f.narrow(normed, 0, 1, 2)


def side_by_side(h: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Results that are concatenated, and also read apart."""
    first = fused.gated_silu(h, y)
    second = fused.gated_gelu_tanh(h, y)
    both = ops.concatenate(first, second, axis=0)
    twice = ops.concatenate(h, y, axis=0)
    sums = fused.add_norm(both, twice, weight, eps=1e-3)
    return f.at(sums, 1), second, both


def through_the_compiler(h: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """A kernel, an op of the compiler, and a kernel: two stages."""
    first = fused.gated_silu(h, y)
    second = fused.gated_silu(first, y)
    third = fused.add_norm(second * 3.0, first, weight, eps=1e-3)
    return (fused.gated_silu(f.at(third, 0), f.at(third, 1)),)


CASES = (read_outside, side_by_side, through_the_compiler)


def case_graph(function: Callable[..., tuple[Tensor, ...]]) -> Graph:
    rows = TensorType((2, WIDTH), DType.F32)
    types = {"h": rows, "y": rows, "weight": TensorType((WIDTH,), DType.F32)}
    return trace(function.__name__, function, types)


compiled = compiled_fixture(lambda: map(case_graph, CASES))


@pytest.mark.parametrize("function", CASES, ids=lambda one: one.__name__)
def test_compiled_chains_compute_the_graph(function: Any, compiled: Compiled) -> None:
    graph = case_graph(function)
    assert any(chain_dispatches(graph))
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=one.shape).astype(np.float32) for one in graph.inputs]
    for actual, wanted in zip(
        compiled(graph.name, *arrays), evaluate(graph, arrays, {}), strict=True
    ):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
