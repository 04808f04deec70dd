"""Every layer in every float dtype: what goes in comes out, and no node on the way loses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Apply, Tensor
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType, TypeRuleError
from tests.models.compiled import Compiled, compiled_fixture
from tests.models.dsl.nn.layer_cases import LAYERS, layer_arrays, layer_graph

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    Array = NDArray[Any]

DTYPES = (DType.F32, DType.BF16, DType.F16)
each_layer = pytest.mark.parametrize("name", LAYERS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.label)


def assert_near(actual: Array, expected: Array, dtype: DType) -> None:
    """Within some roundings of the dtype, of values that add up to some units."""
    assert actual.dtype == dtype.numpy
    step = float(ml_dtypes.finfo(dtype.numpy).eps)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(
        actual.astype(np.float64), expected.astype(np.float64), rtol=8 * step, atol=8 * step
    )


@each_layer
@each_dtype
def test_every_node_has_the_dtype_or_f32(name: str, dtype: DType) -> None:
    """Sums and statistics of f16 and bf16 are taken in f32, and rounded once."""
    graph = layer_graph(name, dtype)
    assert graph.outputs[0].dtype is dtype
    for node in graph.nodes:
        assert isinstance(node.origin, Apply)
        assert node.dtype in (dtype, DType.F32) or not node.dtype.is_float, node


@each_layer
@each_dtype
def test_layers_compute_what_float64_does(name: str, dtype: DType) -> None:
    graph, exact = layer_graph(name, dtype), layer_graph(name, DType.F64)
    arrays = layer_arrays(graph)
    (actual,) = evaluate(graph, arrays, {})
    (expected,) = evaluate(exact, [array.astype(np.float64) for array in arrays], {})
    assert_near(actual, expected, dtype)


@pytest.mark.nightly
@each_layer
@each_dtype
def test_compiled_it_does_too(name: str, dtype: DType, compiled: Compiled) -> None:
    graph, exact = layer_graph(name, dtype), layer_graph(name, DType.F64)
    arrays = layer_arrays(graph)
    (actual,) = compiled(graph.name, *arrays)
    (expected,) = evaluate(exact, [array.astype(np.float64) for array in arrays], {})
    assert_near(actual, expected, dtype)


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "linear"])
def test_a_layer_of_another_dtype_is_refused_by_name(name: str) -> None:
    """An op with f16 and f32 inputs says which it is; there is no promotion that would hide it."""
    with pytest.raises(TypeRuleError, match=r"^\w+\(.*f16\[.*f32\[|^\w+\(.*f32\[.*f16\["):
        layer_graph(name, DType.F16, of=DType.F32)


def test_a_layer_that_loses_its_dtype_fails_when_it_is_built() -> None:
    class Careless(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.parameter(3, dtype=DType.F32)

        def __call__(self, x: Tensor) -> Tensor:
            return x * f.along_last(self.weight, x)

    layer = Careless()
    with pytest.raises(TypeRuleError, match=r"multiply\(bf16\[2, 3\], f32\[2, 3\]\): expected"):
        trace(
            "careless", lambda x: (layer(x),), {"x": TensorType((2, 3), DType.BF16)},
            parameters=layer.parameters(),
        )  # fmt: skip


def test_batch_norm_keeps_running_statistics() -> None:
    """A training step gives them as results, which take the place of the parameters."""
    layer = nn.BatchNorm(2, 1e-5, dtype=DType.F64)
    x = np.random.default_rng(0).normal(size=(5, 2, 3))
    parameters = {name: np.full(2, 0.5) for name in layer.parameters()}
    graph = trace(
        "train", lambda x: layer.train(x, momentum=0.25), {"x": TensorType(x.shape, DType.F64)},
        parameters=layer.parameters(),
    )  # fmt: skip
    y, mean, variance = evaluate(graph, [x], parameters)
    over = (0, 2)
    apart = x - x.mean(over, keepdims=True)
    np.testing.assert_allclose(y, apart / np.sqrt(x.var(over, keepdims=True) + 1e-5) * 0.5 + 0.5)
    np.testing.assert_allclose(mean, 0.75 * 0.5 + 0.25 * x.mean(over))
    np.testing.assert_allclose(variance, 0.75 * 0.5 + 0.25 * x.var(over, ddof=1))


compiled = compiled_fixture(
    lambda: (layer_graph(name, dtype) for name in LAYERS for dtype in DTYPES)
)
