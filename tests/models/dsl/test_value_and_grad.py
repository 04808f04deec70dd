"""value_and_grad rebuilds a function with barriers: same values, and gradients that compile."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Tensor, op_of
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.dsl.value_and_grad import value_and_grad
from tests.models.compiled import Compiled
from tests.models.graphs import traced, type_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph

    Array = NDArray[Any]

# The MLP of Gemma 3 270M with a low-rank term of rank 8: the smallest part of the model whose
# gradient does not compile without barriers behind its products, nor without those in the gradient.
TOKENS, HIDDEN, FFN, RANK = 128, 640, 2048, 8
VOCABULARY = 65536


def mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The mean square of a gated MLP."""
    h = f.gelu_tanh(f.linear(x, gate)) * f.linear(x, up)
    y = f.linear(h, down) + f.linear(f.linear(h, a), b)
    return f.mean_squared_error(y, ops.full_like(y, 0.0))


def with_gradients(function: Callable[..., Tensor], arrays: dict[str, Array], name: str) -> Graph:
    """The function's value and the gradients by all its float arguments."""

    def both(*arguments: Tensor) -> tuple[Tensor, ...]:
        floats = [tensor for tensor in arguments if tensor.dtype.is_float]
        value, gradients = value_and_grad(lambda: function(*arguments), by=floats)
        return (value, *gradients)

    return trace(name, both, {key: type_of(array) for key, array in arrays.items()})


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def cases() -> dict[str, tuple[Graph, list[Array]]]:
    rng = np.random.default_rng(0)
    shapes = {
        "gate": (FFN, HIDDEN),
        "up": (FFN, HIDDEN),
        "down": (HIDDEN, FFN),
        "a": (RANK, FFN),
        "b": (HIDDEN, RANK),
    }
    layer = {"x": normal(rng, TOKENS, HIDDEN)}
    layer |= {
        name: normal(rng, *shape) / np.float32(shape[1] ** 0.5) for name, shape in shapes.items()
    }
    entropy = {
        "logits": normal(rng, 8, VOCABULARY),
        "targets": rng.integers(0, VOCABULARY, 8).astype(np.int32),
    }
    return {
        "mlp": (with_gradients(mlp, layer, "mlp"), list(layer.values())),
        "cross_entropy": (
            with_gradients(f.cross_entropy, entropy, "cross_entropy"),
            list(entropy.values()),
        ),
    }


CASES = cases()


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_gradients_compile_at_the_sizes_of_a_real_model(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without barriers: "large vector sizes", and too large a stack."""
    graph, arrays = CASES[name]
    compiled = Compiled([graph], tmp_path_factory.mktemp(name))
    for actual, expected in zip(compiled(name, *arrays), evaluate(graph, arrays, {}), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * abs(expected).max())


def test_bf16_weights_have_bf16_gradients(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of sum(u * (x W^T)), with x rounded to bf16: u^T x, rounded once."""
    rng = np.random.default_rng(1)
    x, u = normal(rng, 16, 48), normal(rng, 16, 32)
    weight = normal(rng, 32, 48).astype(ml_dtypes.bfloat16)

    def function(x: Tensor, weight: Tensor, u: Tensor) -> tuple[Tensor, ...]:
        _, gradients = value_and_grad(
            lambda: ops.reduce_sum(u * f.linear(x, weight), axes=(0, 1)), by=[weight]
        )
        return gradients

    arrays = {"x": x, "weight": weight, "u": u}
    graph = trace("bf16", function, {key: type_of(array) for key, array in arrays.items()})
    exact = u.T.astype(np.float64) @ x.astype(ml_dtypes.bfloat16).astype(np.float64)
    (gradient,) = evaluate(graph, list(arrays.values()), {})
    (compiled,) = Compiled([graph], tmp_path_factory.mktemp("bf16"))("bf16", *arrays.values())
    for actual in (gradient, compiled):
        assert actual.dtype == ml_dtypes.bfloat16
        np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=2**-8, atol=1e-5)


def test_gradients_of_rounded_activations_are_not_rounded(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Of x by sum(u * (x V^T + x W^T)): u (V + W), also where both products read one rounded x."""
    rng = np.random.default_rng(2)
    x, u = normal(rng, 16, 48), normal(rng, 16, 32)
    v, w = (normal(rng, 32, 48).astype(ml_dtypes.bfloat16) for _ in range(2))

    def function(x: Tensor, v: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor, ...]:
        def loss() -> Tensor:
            rounded = ops.convert(x, dtype=DType.BF16)
            sides = ((), ()), ((1,), (1,))
            products = [f.linear(x, v), f.linear(x, w)]
            products += [
                ops.dot_general(rounded, y, batch=sides[0], contract=sides[1], dtype=DType.F32)
                for y in (v, w)
            ]
            return ops.reduce_sum(u * functools.reduce(ops.add, products), axes=(0, 1))

        return value_and_grad(loss, by=[x])[1]

    arrays = {"x": x, "v": v, "w": w, "u": u}
    graph = trace("rounded", function, {key: type_of(array) for key, array in arrays.items()})
    exact = 2 * u.astype(np.float64) @ (v.astype(np.float64) + w.astype(np.float64))
    (gradient,) = evaluate(graph, list(arrays.values()), {})
    (compiled,) = Compiled([graph], tmp_path_factory.mktemp("rounded"))("rounded", *arrays.values())
    for actual in (gradient, compiled):
        np.testing.assert_allclose(actual, exact, rtol=0, atol=2e-6 * abs(exact).max())


def products(graph: Graph) -> list[Tensor]:
    return [node for node in graph.nodes if op_of(node) in (ops.dot_general, ops.project)]


def test_the_value_of_a_function_is_unchanged() -> None:
    arrays = [array.astype(np.float64) for array in CASES["mlp"][1]]
    before = traced(mlp, arrays)
    after = traced(lambda *arguments: value_and_grad(mlp, *arguments)[0], arrays)
    assert evaluate(after, arrays, {})[0] == evaluate(before, arrays, {})[0]
    assert len(products(after)) == len(products(inlined(before))) == 5


def test_only_barriers_read_products() -> None:
    graph, _ = CASES["mlp"]
    product_nodes = products(graph)
    assert len(product_nodes) == 15  # each product of the function has two in the gradient
    for node in graph.nodes:
        assert op_of(node) is ops.barrier or not any(x in product_nodes for x in node.inputs)
    assert not any(output in product_nodes for output in graph.outputs)


def test_a_tensor_whose_gradient_is_asked_for_is_not_rebuilt() -> None:
    """The gradient by a product, and by an input of it that the function reads too."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        product = f.matmul(x, y)
        value, gradients = value_and_grad(
            lambda: ops.reduce_sum(product * product + x, axes=(0, 1)), by=[product, x]
        )
        return (value, *gradients)

    x, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]])
    graph = trace("function", function, {"x": type_of(x), "y": type_of(y)})
    value, of_product, of_x = evaluate(graph, [x, y], {})
    assert value == ((x @ y) ** 2 + x).sum()
    assert np.array_equal(of_product, 2 * x @ y)
    assert np.array_equal(of_x, 2 * x @ y @ y.T + 1)


def test_the_gradient_of_a_barrier_is_a_barrier() -> None:
    x = Tensor(TensorType((2, 3), DType.F32), ops.full(shape=(), dtype=DType.F32, value=0).origin)
    _, (gradient,) = value_and_grad(lambda x: ops.reduce_sum(ops.barrier(x) * 2.0, axes=(0, 1)), x)
    assert op_of(gradient) is ops.barrier
