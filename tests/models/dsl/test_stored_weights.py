"""Graphs on stored matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.fused.quantized_products import sample_matrix
from hearthd.models.dsl.fused.two_part_head import (
    ALL,
    ROUNDED_MARGIN,
    linear_coarse,
    linear_refined,
    two_part_head,
)
from hearthd.models.dsl.graph import Apply, Parameter, Tensor
from hearthd.models.dsl.matrix_format import INT8_HALVES
from hearthd.models.dsl.rewrites.stored_weights import Weights, store_matrices, stored_graph
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, SOME, COLUMNS = 96, 32, 256
_UPPER: Any = {"matrix_format": "int8-g32-upper"}


@pytest.mark.parametrize("name", STORAGES)
def test_logits_of_the_first_tokens_are_products_with_the_first_rows(name: str) -> None:
    head = Tensor(TensorType((ROWS, COLUMNS), DType.F32), Parameter())

    def logits(x: Tensor, margin: Tensor) -> tuple[Tensor, ...]:
        return (f.approximate_logits(f.narrow(f.times_weight(x, head), 1, 0, SOME), margin),)

    inputs = {"x": TensorType((1, COLUMNS), DType.F32), "margin": TensorType((1,), DType.I32)}
    graph = trace("draft", logits, inputs, parameters={"head.weight": head})
    weights = Weights({"head.weight": head})
    store_matrices([graph], weights, lambda _: STORAGES[name])
    stored, counts = stored_graph(graph, weights, 8)
    assert counts == {"two_part_head": 1}
    assert stored.outputs[0].shape == (1, SOME)
    for node in stored.nodes:
        assert isinstance(node.origin, Apply)
        assert (1, ROWS) not in (node.shape, *(source.shape for source in node.inputs))


@pytest.mark.parametrize("cap", [30.0, 3.0])
@pytest.mark.parametrize("size", [1.0, 30.0])
@pytest.mark.parametrize("margin", [8, 11])
def test_capped_logits_that_matter_are_exact(
    cap: float, size: float, margin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cap of 3, all are within the margins; with a size of 30, many are near the cap."""
    rng = np.random.default_rng(0)
    x = (size * rng.normal(size=(2, COLUMNS))).astype(np.float32)
    # Rows of different lengths, so that few blocks have large logits.
    arrays = sample_matrix(rng, INT8_HALVES, 64 * 16, COLUMNS)
    arrays[-1][...] = (arrays[-1] * rng.exponential(size=(64, 1, 1))).astype(np.float16)

    def logits(x: Tensor, margin: Tensor, *matrix: Tensor) -> tuple[Tensor, ...]:
        return (f.soft_cap(two_part_head(x, margin, matrix, INT8_HALVES, cap=cap), cap=cap),)

    def coarse(x: Tensor, exact: Tensor, *matrix: Tensor) -> tuple[Tensor, ...]:
        upper, _, scale = matrix
        return (f.soft_cap(linear_coarse(x, exact, upper, scale, **_UPPER), cap=cap),)

    def values(function: Callable[..., tuple[Tensor, ...]], number: int) -> np.ndarray:
        inputs = (x, np.array([number, number], np.int32), *arrays)
        types = {
            f"x{i}": TensorType(array.shape, DType.of(array.dtype))
            for i, array in enumerate(inputs)
        }
        return evaluate(trace("head", function, types), inputs, {})[0]

    quick = values(logits, margin)
    # By its definition. NumPy adds the products of fewer blocks in another order.
    monkeypatch.setitem(vars(linear_refined), "in_numpy", None)
    expected, actual = values(logits, ALL), values(logits, margin)
    np.testing.assert_allclose(quick, actual, rtol=0, atol=1e-6 * cap)
    first = values(coarse, 0)
    blocks = first.reshape(2, -1, 16).max(axis=2)
    below = np.repeat(blocks.max(axis=1, keepdims=True) - blocks, 16, axis=1)
    matter = below < ROUNDED_MARGIN - 1e-4
    np.testing.assert_array_equal(actual[matter], expected[matter])
    assert matter.all() == (cap == 3.0)
    assert (actual == expected).all() == (cap == 3.0)
    matter = below < margin - 1e-4
    np.testing.assert_allclose(actual[matter], expected[matter], rtol=0, atol=0.5)
    far = below > margin + 1e-4
    np.testing.assert_array_equal(actual[far], first[far])
    assert far.any() == (cap == 30.0)


def test_a_capped_head_is_one_in_two_parts() -> None:
    head = Tensor(TensorType((ROWS, COLUMNS), DType.F32), Parameter())

    def logits(x: Tensor, margin: Tensor) -> tuple[Tensor, ...]:
        return (f.approximate_logits(f.soft_cap(f.times_weight(x, head), cap=30.0), margin),)

    inputs = {"x": TensorType((1, COLUMNS), DType.F32), "margin": TensorType((1,), DType.I32)}
    graph = trace("decode", logits, inputs, parameters={"head.weight": head})
    weights = Weights({"head.weight": head})
    store_matrices([graph], weights, lambda _: STORAGES["int6-g16-s256"])
    _, counts = stored_graph(graph, weights, 8)
    assert counts == {"two_part_head": 1}
