"""Slices of a tower: together they compute the bits of the whole, whatever the limit."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.decoder import tower_entry_points
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.fused.full_attention import full_attention
from hearthd.models.dsl.graph import op_of
from hearthd.models.dsl.graph_slices import products, sliced, work
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.families import gemma4_images
from hearthd.models.families.smolvlm import ARCHITECTURE
from hearthd.models.program import ProgramOptions
from tests.baker.small_gemma4 import CONFIG as GEMMA4
from tests.baker.small_smolvlm import CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.program import Program

OPTIONS = ProgramOptions(
    context=64, precision="int8-g32", prefill_tokens=(16,), decode_batches=(1,), reads_rows=True
)
# 400 patches, so that ops are divided into rows too.
LARGE = replace(CONFIG, image_size=160)
GATED = replace(GEMMA4, tower_ffn=160)
LIMITS = (2**16, 2**22, 2**40)


def program(precision: str = "int8-g32") -> Program:
    return ARCHITECTURE.program(LARGE, replace(OPTIONS, precision=precision))


@functools.cache
def tower(precision: str = "int8-g32") -> Graph:
    (graph,) = (graph for point, graph in program(precision).entry_points if point.kind == "image")
    return graph


@functools.cache
def gated_tower() -> Graph:
    """A tower of Gemma 4 for 144 patches, whose products are clamped."""
    options = replace(OPTIONS, image_rows=(16,))
    points = gemma4_images.ARCHITECTURE.program(GATED, options).entry_points
    (graph,) = (graph for point, graph in points if point.kind == "image")
    return graph


@pytest.fixture(autouse=True)
def _equal_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy multiplies each row alone.

    Some builds of BLAS add the products of a row in an order that depends on the number of rows.
    """
    matmul = np.matmul

    def by_row(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        rows = range(left.shape[-2])
        return np.concatenate([matmul(left[..., i : i + 1, :], right) for i in rows], axis=-2)

    monkeypatch.setattr(np, "matmul", by_row)


def arrays(types: Mapping[str, TensorType]) -> dict[str, NDArray[np.generic]]:
    rng = np.random.default_rng(0)
    return {
        name: rng.integers(-9, 9, type_.shape).astype(type_.dtype.numpy)
        for name, type_ in types.items()
    }


def assert_same_bits(graph: Graph, limit: int, inputs: list[NDArray[np.generic]]) -> None:
    """Slices compute what the whole does."""
    weights = arrays({name: tensor.type for name, tensor in graph.parameters.items()})
    (expected,) = evaluate(graph, inputs, weights)
    values, slices = inputs, sliced(graph, limit)
    assert len(slices) > 1
    for part in slices:
        own = {name: weights[name] for name in part.parameters}
        values = list(evaluate(part, values, own))
    np.testing.assert_array_equal(values[0], expected)


@pytest.mark.parametrize(
    ("limit", "precision"), [(2**16, "int8-g32"), (2**22, "int8-g32"), (2**20, "f32")]
)
def test_slices_compute_the_bits_of_the_whole(limit: int, precision: str) -> None:
    graph = tower(precision)
    pixels = np.random.default_rng(1).normal(size=graph.inputs[0].shape).astype(np.float32)
    assert_same_bits(graph, limit, [pixels])


def test_slices_of_gated_layers_compute_the_bits_of_the_whole() -> None:
    graph = gated_tower()
    patches = np.random.default_rng(1).normal(size=graph.inputs[0].shape).astype(np.float32)
    places = np.indices((12, 12), np.int32).reshape(2, 144)
    assert_same_bits(graph, 2**16, [patches, places, np.array([12, 12], np.int32)])


@pytest.mark.parametrize("limit", LIMITS)
def test_a_slice_exceeds_the_limit_by_a_few_rows_at_most(limit: int) -> None:
    """Of the most expensive op: blocks have 32 rows, and at least 64 are computed at once."""
    slices = sliced(tower(), limit)
    costs = [sum(map(work, part.nodes)) for part in slices]
    row = max(map(products, tower().nodes)) / 400
    copied = 512 * tower().inputs[0].type.size  # all pixels are arranged at once
    assert max(costs) <= max(limit + 32 * row, 3 * 32 * row, copied)
    found = sum(products(node) for part in slices for node in part.nodes)
    assert found == sum(map(products, tower().nodes))


def grouped(x: Tensor, bias: Tensor) -> Tensor:
    """Attention of 4 heads to 2 of keys and values, (N, 192) -> (N, 96), with a bias and halves
    of queries that change places."""
    rows = x.shape[0]
    heads = ops.reshape(x, shape=(rows, 8, 24))
    query = f.narrow(heads, 1, 0, 4) + f.along_axes(bias, f.narrow(heads, 1, 0, 4), (0,))
    query = ops.concatenate(f.narrow(query, 2, 12, 24), f.narrow(query, 2, 0, 12), axis=2)
    key, value = f.narrow(heads, 1, 4, 6), f.narrow(heads, 1, 6, 8)
    padding = ((0, 0, 0), (0, 0, 0), (0, 8, 0))
    query, key, value = (ops.pad(x, padding=padding, value=0.0) for x in (query, key, value))
    keys, values = (ops.reshape(x, shape=(rows, 64)) for x in (key, value))
    last = ops.full(shape=(1,), value=rows - 1, dtype=DType.I32)
    mixed = full_attention(query, keys, values, last, scale=0.2, counted=False)
    return ops.reshape(f.narrow(mixed, 2, 0, 24), shape=(rows, 96))


def test_attention_is_divided_by_heads() -> None:
    """So no slice prepares keys for another one, or copies what others read."""
    types = {"x": TensorType((64, 192), DType.F32), "bias": TensorType((4, 24), DType.F32)}
    graph = trace("grouped", lambda x, bias: (grouped(x, bias),), types)
    long = next(products(node) for node in graph.nodes if op_of(node) is full_attention)
    slices = sliced(graph, long // 2)
    rng = np.random.default_rng(2)
    inputs: list[NDArray[np.generic]] = [
        rng.normal(size=type_.shape).astype(np.float32) for type_ in types.values()
    ]
    assert_same_bits(graph, long // 2, inputs)
    nodes = [node for part in slices for node in part.nodes]
    shapes = [[x.shape for x in node.inputs[:3]] for node in nodes if op_of(node) is full_attention]
    assert shapes == [[(64, 2, 32), (64, 32), (64, 32)]] * 2
    assert not [node for node in nodes if op_of(node) is ops.pad and node.shape[1] > 2]
    joined = [node.shape for node in nodes if op_of(node) is ops.concatenate]
    assert joined.count((64, 4, 24)) == 1


@pytest.mark.parametrize(
    ("graph", "rows", "width", "limit"),
    [(tower, 400, CONFIG.tower_ffn, 2**22), (gated_tower, 144, GATED.tower_ffn, 2**20)],
)
def test_no_value_between_two_products_is_stored_for_all_rows(
    graph: Callable[[], Graph], rows: int, width: int, limit: int
) -> None:
    slices = sliced(graph(), limit)
    middle = [node for part in slices for node in part.nodes if width in node.shape]
    assert middle
    assert all(node.shape[0] < rows for node in middle)


def test_products_and_attention_are_counted() -> None:
    """2 x rows x inputs x outputs of a product; 4 x rows x rows x width of attention, twice."""
    patches, rows, width, ffn = 400, 100, CONFIG.tower_hidden, CONFIG.tower_ffn
    layer = 2 * patches * width * (4 * width + 2 * ffn) + 2 * 4 * patches**2 * width
    embedding = 2 * patches * 3 * CONFIG.patch_size**2 * width
    projection = 2 * rows * 4 * width * CONFIG.hidden
    expected = embedding + CONFIG.tower_layers * layer + projection
    assert sum(map(products, tower("f32").nodes)) == expected


def test_uploaded_pixels_are_in_the_memory_of_a_tower_of_one_slice() -> None:
    points = {point.kind: point for point, _ in program().entry_points}
    assert (points["image"].slices, points["image"].kept) == (1, 4 * 3 * LARGE.image_size**2)
    assert points["prefill"].kept == 0


def test_an_entry_point_says_what_its_slices_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tower_entry_points, "SLICE_WORK", 2**22)
    traced = program()
    (point,) = (point for point, _ in traced.entry_points if point.kind == "image")
    assert point.slices > 1
    slices = {graph.name: graph for graph in traced.graphs if graph.name.startswith("image")}
    assert point.functions == tuple(slices)
    kept = [sum(x.type.nbytes for x in part.inputs) for part in slices.values()]
    assert point.kept == max(kept)
    whole = {graph.name for _, graph in traced.entry_points}
    assert whole - {"image"} == {graph.name for graph in traced.graphs} - slices.keys()
