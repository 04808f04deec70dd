"""value_and_grad, losses and optimizers: against formulas in NumPy, and compiled against both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Input, Tensor, make_graph
from hearthd.models.dsl.nn import Linear
from hearthd.models.dsl.optimizers import Adam, Optimizer, Sgd, WarmupCosine, clipped
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DslError, DType, NoGradientError, TensorType
from hearthd.models.dsl.value_and_grad import value_and_grad
from tests.models.compiled import Compiled, compiled_fixture
from tests.models.graphs import check_gradient, run, traced, type_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph

    Array = NDArray[Any]

LOGITS = (4, 7)
TARGETS = np.array([6, 0, 3, 3], np.int32)
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Sgd(rate=0.05),
    "momentum": Sgd(rate=0.05, momentum=0.9),
    "adam": Adam(rate=0.02, beta1=0.8, beta2=0.99, eps=1e-6),
    "adamw": Adam(rate=WarmupCosine(peak=0.05, warmup=2, total=7), decay=0.1),
}


def scalar(value: Tensor) -> Tensor:
    return ops.reduce_sum(value, axes=tuple(range(value.type.rank)))


# --- value_and_grad


def test_gradients_of_the_arguments_and_of_what_a_function_reads() -> None:
    """sum(x y + y) in one trace: y + 0, x + 1; and by a tensor that the trace computed."""

    def outer(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        doubled = x * 2.0
        value, gradients = value_and_grad(lambda x, y: scalar(x * y + y), x, y)
        _, (inner,) = value_and_grad(lambda: scalar(doubled * y), by=[doubled])
        return (value, *gradients, inner)

    x, y = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    graph = trace("outer", outer, {"x": type_of(x), "y": type_of(y)})
    value, of_x, of_y, inner = evaluate(graph, [x, y], {})
    assert value == 21.0
    assert (of_x.tolist(), of_y.tolist(), inner.tolist()) == ([3, 5], [2, 3], [3, 5])


def test_the_gradient_of_a_gradient() -> None:
    """d/dx of sum((d/dx sum x^3)^2) = 36 x^3."""

    def slope(x: Tensor) -> Tensor:
        return value_and_grad(lambda x: scalar(x * x * x), x)[1][0]

    x = np.array([0.5, -2.0])
    actual = run(lambda x: value_and_grad(lambda x: scalar(slope(x) * slope(x)), x)[1][0], x)
    np.testing.assert_allclose(actual, 36 * x**3)


def test_gradients_of_a_modules_parameters() -> None:
    """The gradient of sum(x W^T) by W is the sum of x's rows, for each of W's."""
    layer = Linear(3, 2)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    (weight,) = layer.parameters().values()

    def function(x: Tensor) -> tuple[Tensor, ...]:
        value, gradients = value_and_grad(lambda: scalar(layer(x)), by=[weight])
        return (value, *gradients)

    stored = {"weight": np.array([[1, 2, 3], [4, 5, 6]], np.float32)}
    graph = trace("f", function, {"x": type_of(x)}, parameters=layer.parameters())
    value, gradient = evaluate(graph, [x], stored)
    assert value == (x @ stored["weight"].T).sum()
    assert np.array_equal(gradient, np.broadcast_to(x.sum(0), (2, 3)))
    # The same with the weight passed in.
    with_weight = make_graph("g", (weight, *graph.inputs), graph.outputs, layer.parameters(), {})
    passed = evaluate(with_weight, [stored["weight"], x], {})
    assert np.array_equal(passed[1], gradient)


def test_only_a_float_scalar_has_a_gradient() -> None:
    x = Tensor(TensorType((2,), DType.F32), Input("x"))
    with pytest.raises(DslError, match=r"expected a float scalar of the function, got f32\[2\]"):
        value_and_grad(lambda x: x, x)
    with pytest.raises(DslError, match=r"got i32\[\]"):
        value_and_grad(lambda x: ops.convert(scalar(x), dtype=DType.I32), x)
    with pytest.raises(NoGradientError, match="sign has no gradient"):
        value_and_grad(lambda x: scalar(ops.sign(x)), x)


# --- losses


def test_cross_entropy_is_its_formula_and_finite_for_large_logits() -> None:
    logits = np.random.default_rng(0).normal(size=LOGITS)
    odds = np.exp(logits)
    expected = -np.log(odds[np.arange(4), TARGETS] / odds.sum(1)).mean()
    assert run(f.cross_entropy, logits, TARGETS) == pytest.approx(expected, rel=1e-12)
    # exp(1000) overflows, but the loss is a difference of logits.
    large = np.array([[1000.0, -1000.0], [0.0, 1000.0]])
    assert run(f.cross_entropy, large, np.array([1, 1], np.int32)) == 1000.0


def test_mean_squared_error_is_its_formula() -> None:
    x, target = np.random.default_rng(0).normal(size=(2, 3, 4, 2))
    actual = run(f.mean_squared_error, x, target)
    assert actual == pytest.approx(((x - target) ** 2).mean(), rel=1e-12)


def test_gradients_of_losses_equal_finite_differences() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=LOGITS)
    graph = traced(f.cross_entropy, [logits, TARGETS])
    assert check_gradient(graph, [logits, TARGETS], rng) == 1
    pair = [rng.normal(size=(3, 2)), rng.normal(size=(3, 2))]
    assert check_gradient(traced(f.mean_squared_error, pair), pair, rng) == 2


# --- optimizers


def update_graph(
    optimizer: Optimizer, shapes: dict[str, tuple[int, ...]], dtype: DType, name: str = "update"
) -> Graph:
    """(weights, gradients, state) -> (weights, state), each in the order of its names."""
    weights = {key: TensorType(shape, dtype) for key, shape in shapes.items()}
    state = optimizer.state(weights)
    inputs = {**weights, **{f"{key}.gradient": weights[key] for key in weights}, **state}

    def update(*tensors: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(inputs, tensors, strict=True))
        new, after = optimizer.update(
            {key: named[key] for key in weights},
            {key: named[f"{key}.gradient"] for key in weights},
            {key: named[key] for key in state},
        )
        assert (list(new), list(after)) == (list(weights), list(state))
        return (*new.values(), *after.values())

    return trace(name, update, inputs)


def steps_of(name: str, w: Array, gradients: list[Array]) -> Array:
    """The weights after those steps, by the papers' formulas in NumPy."""
    optimizer = OPTIMIZERS[name]
    m = v = np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        if isinstance(optimizer, Sgd):
            v = optimizer.momentum * v + g
            w = w - optimizer.rate * v
        else:
            assert isinstance(optimizer, Adam)
            m = optimizer.beta1 * m + (1 - optimizer.beta1) * g
            v = optimizer.beta2 * v + (1 - optimizer.beta2) * g**2
            mean, square = m / (1 - optimizer.beta1**t), v / (1 - optimizer.beta2**t)
            change = mean / (np.sqrt(square) + optimizer.eps) + optimizer.decay * w
            w = w - rate_of(optimizer, t) * change
    return w


def rate_of(optimizer: Adam, t: int) -> float:
    """The learning rate of step t, counted from 1."""
    match optimizer.rate:
        case WarmupCosine(peak=peak, warmup=warmup, total=total):
            progress = (t - 1 - warmup) / (total - warmup)
            return peak * (t / warmup if t <= warmup else (1 + np.cos(np.pi * progress)) / 2)
        case float(rate):
            return rate
    raise AssertionError(optimizer.rate)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_follow_their_formulas(name: str) -> None:
    rng = np.random.default_rng(2)
    shapes = {"a": (3, 2), "b": (4,)}
    graph = update_graph(OPTIMIZERS[name], shapes, DType.F64)
    starts = [rng.normal(size=shape) for shape in shapes.values()]
    gradients = [[rng.normal(size=shape) for shape in shapes.values()] for _ in range(5)]
    weights = starts
    state = [np.zeros(x.shape, x.dtype.numpy) for x in graph.inputs[2 * len(shapes) :]]
    for step in gradients:
        results = evaluate(graph, [*weights, *step, *state], {})
        weights, state = results[: len(shapes)], results[len(shapes) :]
    for place, actual in enumerate(weights):
        expected = steps_of(name, starts[place], [step[place] for step in gradients])
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_a_schedule_ends_at_zero_and_checks_its_steps() -> None:
    schedule = WarmupCosine(peak=2.0, warmup=2, total=6)
    rates = [
        float(run(lambda steps: schedule.rate(steps, DType.F64), np.array(step, np.int32)))
        for step in range(9)
    ]
    falling = [1 + np.cos(np.pi * part) for part in (0, 0.25, 0.5, 0.75)]
    np.testing.assert_allclose(rates, [1.0, 2.0, *falling, 0.0, 0.0, 0.0], atol=1e-15)
    with pytest.raises(DslError, match="warmup: expected 0 to 5, got 6"):
        WarmupCosine(peak=1.0, warmup=6, total=6)


def test_clipping_scales_all_gradients_by_their_common_norm() -> None:
    """The norm of (3, 0) and (4,) is 5; a norm below the limit changes nothing."""
    a, b = np.array([3.0, 0.0]), np.array([4.0])
    for limit, factor in ((1.0, 0.2), (50.0, 1.0)):
        names = trace(
            "clipped",
            lambda a, b, limit=limit: tuple(clipped({"a": a, "b": b}, limit).values()),
            {"a": type_of(a), "b": type_of(b)},
        )
        actual = evaluate(names, [a, b], {})
        np.testing.assert_allclose(actual[0], a * factor, rtol=1e-6)
        np.testing.assert_allclose(actual[1], b * factor, rtol=1e-6)


# --- compiled


def loss_graphs() -> dict[str, tuple[Graph, list[Array]]]:
    """A loss and its gradients in one function each, and updates, with arrays for them."""
    rng = np.random.default_rng(3)

    def normal(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32)

    logits, x, target = normal(*LOGITS), normal(3, 2), normal(3, 2)

    def entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        value, parts = value_and_grad(lambda x: f.cross_entropy(x, targets), logits)
        return (value, *parts)

    def squares(x: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        value, parts = value_and_grad(f.mean_squared_error, x, target)
        return (value, *parts)

    types = {"logits": type_of(logits), "targets": type_of(TARGETS)}
    cases = {
        "entropy": (trace("entropy", entropy, types), [logits, TARGETS]),
        "squares": (
            trace("squares", squares, {"x": type_of(x), "target": type_of(target)}),
            [x, target],
        ),
    }
    for name in OPTIMIZERS:
        graph = update_graph(OPTIMIZERS[name], {"a": (3, 2)}, DType.F32, name)
        arrays = [
            np.array(3, np.int32) if tensor.dtype is DType.I32 else abs(normal(*tensor.shape))
            for tensor in graph.inputs
        ]
        cases[name] = (graph, arrays)
    return cases


CASES = loss_graphs()


compiled = compiled_fixture(lambda: (graph for graph, _ in CASES.values()))


@pytest.mark.parametrize("name", CASES)
def test_compiled_equals_numpy(name: str, compiled: Compiled) -> None:
    graph, arrays = CASES[name]
    for actual, expected in zip(compiled(name, *arrays), evaluate(graph, arrays, {}), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
