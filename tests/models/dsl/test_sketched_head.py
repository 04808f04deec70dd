"""A drafter's head computes the blocks of rows that are likely by their sketch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.parameters.quantization import encoded
from hearthd.baker.parameters.sketch import mean_row
from hearthd.models.dsl import functions as f
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Parameter, Tensor
from hearthd.models.dsl.rewrites.stored_weights import Weights, store_matrices, stored_graph
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph
    from hearthd.models.dsl.rewrites.stored_weights import Weight

    Floats = NDArray[np.floating[Any]]

# The last block has 11 rows, and the last super-block 64 columns.
ROWS, COLUMNS = 1595, 192
TWO_PARTS = ("int8-g32", "int12-g32")


def stored_head(name: str, cap: float | None = None) -> tuple[Graph, Weight]:
    """The graph of the logits of a draft, and its head."""
    head = Tensor(TensorType((ROWS, COLUMNS), DType.F32), Parameter())

    def draft(x: Tensor) -> tuple[Tensor, ...]:
        logits = f.times_weight(x, head)
        return (f.draft_logits(logits if cap is None else f.soft_cap(logits, cap=cap)),)

    inputs = {"x": TensorType((1, COLUMNS), DType.F32)}
    graph = trace("draft", draft, inputs, parameters={"head.weight": head})
    weights = Weights({"head.weight": head})
    store_matrices([graph], weights, lambda _: STORAGES[name])
    graph, counts = stored_graph(graph, weights, 8)
    assert counts == {"sketched_head": 1}
    return graph, weights.stored(head)


def drafted(graph: Graph, weight: Weight, matrix: Floats, x: Floats) -> Floats:
    arrays = encoded(weight.storage, matrix, mean_row([matrix]))
    for array, tensor in zip(arrays, weight.parameters.values(), strict=True):
        assert TensorType(array.shape, DType.of(array.dtype)) == tensor.type
    logits: Floats = evaluate(graph, (x,), dict(zip(weight.parameters, arrays, strict=True)))[0][0]
    return logits


def random_head() -> tuple[Floats, Floats]:
    """A matrix with a large mean row, and a state that is near one of its rows."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(ROWS, COLUMNS)) + 3 * rng.normal(size=COLUMNS)
    x = matrix[-1:] - matrix.mean(axis=0) + rng.normal(size=(1, COLUMNS))
    return matrix.astype(np.float32), (x / 10).astype(np.float32)


def by_formula(matrix: Floats, center: Floats, x: Floats) -> Floats:
    """Outputs of the sketch in f64, (N,)."""
    hadamard: Floats = np.ones((1, 1))
    while len(hadamard) < 32:
        hadamard = np.kron([[1, 1], [1, -1]], hadamard)

    def rotated(rows: Floats) -> Floats:
        groups: Floats = rows.reshape(-1, 32) @ hadamard / np.sqrt(32)
        return groups.reshape(rows.shape)

    rows = rotated(matrix.astype("f8") - center)
    result: Floats = np.zeros(len(matrix))
    for start in range(0, matrix.shape[1], 128):
        some = slice(start, start + 128)
        scale = np.abs(rows[:, some]).mean(axis=1)
        result += np.sign(rows[:, some]) @ rotated(x.astype("f8"))[0, some] * scale
    return result


@pytest.mark.parametrize("name", TWO_PARTS)
def test_blocks_that_are_likely_by_the_sketch_are_computed(name: str) -> None:
    matrix, x = random_head()
    graph, head = stored_head(name)
    logits, exact = drafted(graph, head, matrix, x), (x @ matrix.T)[0]
    assert logits.shape == exact.shape
    assert logits.argmax() == exact.argmax() == ROWS - 1
    center = mean_row([matrix])
    assert head.storage.format is not None
    values = real_weights(encoded(head.storage, matrix, center)[:3], head.storage.format)
    blocks = by_formula(values, center, x).reshape(-1, 16).max(axis=1)
    above = (blocks - blocks.mean()) / blocks.std()
    computed = logits > -1e29
    np.testing.assert_array_equal(computed[::16][above > 1.3], True)
    np.testing.assert_array_equal(computed[::16][above < 1.2], False)
    assert 0.02 < computed.mean() < 0.15
    # The upper half of an integer is at most eight steps away.
    steps = np.abs(matrix).reshape(len(matrix), -1, 32).max(axis=2) / 127
    bound = np.repeat(8.1 * steps, 32, axis=1) @ np.abs(x[0])
    assert (np.abs(logits - exact) < bound)[computed].all()
    best = exact > exact.max() - 2
    np.testing.assert_allclose(logits[best], exact[best], rtol=0, atol=0.1)


def test_equal_rows_are_computed() -> None:
    """None of a few equal maxima is far above their mean."""
    matrix = np.ones((ROWS, COLUMNS), np.float32)
    logits = drafted(*stored_head("int8-g32"), matrix, np.ones((1, COLUMNS), np.float32))
    np.testing.assert_allclose(logits, COLUMNS, rtol=0.01)


def test_two_levels_of_blocks_are_told_apart() -> None:
    """More than a third of the blocks is the best: these are less than 1.25 deviations above."""
    matrix = np.ones((ROWS, COLUMNS), np.float32)
    matrix[: ROWS // 2] = -1
    logits = drafted(*stored_head("int8-g32"), matrix, np.ones((1, COLUMNS), np.float32))
    assert logits[-1] == logits.max()
    np.testing.assert_allclose(logits[-1], COLUMNS, rtol=0.01)
    assert logits[0] < -1e29


def test_logits_are_capped_after_the_blocks_are_chosen() -> None:
    matrix, x = random_head()
    plain, capped = (drafted(*stored_head("int8-g32", cap), matrix, x) for cap in (None, 30.0))
    np.testing.assert_allclose(capped, 30 * np.tanh(plain / 30), rtol=1e-5)


@pytest.mark.parametrize("name", sorted(STORAGES.keys() - {*TWO_PARTS, "int6-g16-s256"}))
def test_a_head_in_one_part_has_no_sketch(name: str) -> None:
    graph, weight = stored_head(name)
    assert not weight.storage.has_sketch
    assert graph.outputs[0].shape == (1, ROWS)


def test_only_the_head_of_a_drafter_has_a_sketch() -> None:
    tables = {
        name: Tensor(TensorType((ROWS, COLUMNS), DType.F32), Parameter()) for name in ("a", "b")
    }

    def graph(kind: str, name: str) -> Graph:
        def logits(ids: Tensor, margin: Tensor) -> tuple[Tensor, ...]:
            product = f.times_weight(f.embedding(ids, tables[name]), tables[name])
            return (
                f.draft_logits(product)
                if kind == "draft"
                else f.approximate_logits(product, margin),
            )

        inputs = {key: TensorType((1,), DType.I32) for key in ("ids", "margin")}
        return trace(kind, logits, inputs, parameters=tables)

    weights = Weights(tables)
    store_matrices(
        [graph("decode", "a"), graph("draft", "b")], weights, lambda _: STORAGES["int8-g32"]
    )
    a, b = (weights.stored(tensor) for tensor in tables.values())
    assert [*a.parameters] == ["aupper", "alower", "ascale"]
    assert [*b.parameters][3:] == ["bsketch_weight", "bsketch_scale"]
    assert b.storage.format is a.storage.format
    _, counts = stored_graph(graph("draft", "b"), weights, 8)
    assert counts == {"sketched_head": 1, "embedding": 1}
