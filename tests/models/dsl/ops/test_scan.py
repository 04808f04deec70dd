"""Scan: what the registry's test of every op does not look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.gradient import gradients
from hearthd.models.dsl.graph import Input, Parameter, Tensor, make_graph
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DslError, DType, TensorType, TypeRuleError
from tests.models.compiled import Compiled
from tests.models.graphs import check_gradient, gradient_graph, run, traced, type_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]


def decayed(state: Tensor, x: Tensor, factor: Tensor) -> Tensor:
    return state * factor + x


def scanned(steps: int, *, reverse: bool = False, keep: str = "all") -> Any:
    def function(initial: Tensor, xs: Tensor, factor: Tensor) -> Tensor:
        return ops.scan(
            initial, xs, factor, body=decayed, sequences=1, steps=steps, reverse=reverse, keep=keep
        )

    return function


def arrays(steps: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    return rng.normal(size=3), rng.normal(size=(steps, 3)), rng.normal(size=3)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
def test_states_are_those_of_the_formula(steps: int, reverse: bool) -> None:
    """h_t = sum of factor^(t - s) x_s over the steps read so far, and factor^t h_0."""
    initial, xs, factor = arrays(steps, np.random.default_rng(0))
    actual = run(scanned(steps, reverse=reverse), initial, xs, factor)
    order = range(steps)[::-1] if reverse else range(steps)
    for number, place in enumerate(order):
        expected = factor ** (number + 1) * initial
        for before, earlier in enumerate(order[: number + 1]):
            expected = expected + factor ** (number - before) * xs[earlier]
        np.testing.assert_allclose(actual[place], expected, rtol=1e-12)
    last = run(scanned(steps, reverse=reverse, keep="last"), initial, xs, factor)
    assert np.array_equal(last, actual[order[-1]])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("keep", ["all", "last"])
@pytest.mark.parametrize("steps", [1, 3])
def test_gradient_and_its_gradient_equal_finite_differences(
    steps: int, keep: str, reverse: bool
) -> None:
    rng = np.random.default_rng(1)
    inputs = arrays(steps, rng)
    graph = traced(scanned(steps, reverse=reverse, keep=keep), inputs)
    assert check_gradient(graph, inputs, rng) == 3

    def slope(*tensors: Tensor) -> Tensor:
        """The gradient by the factor, of the sum of the states' squares."""
        states = scanned(steps, reverse=reverse, keep=keep)(*tensors)
        loss = ops.reduce_sum(states * states, axes=tuple(range(states.type.rank)))
        inner = make_graph("inner", tensors, (loss,), {}, {})
        return gradients(inner, (ops.full_like(loss, 1.0),), (tensors[2],))[0]

    assert check_gradient(traced(slope, inputs), inputs, rng) == 3


def test_the_size_of_a_loop_does_not_grow_with_the_steps() -> None:
    texts = []
    for steps in (10, 1000):
        shapes = {"h": (3,), "xs": (steps, 3), "factor": (3,)}
        inputs = [np.zeros(shape, np.float32) for shape in shapes.values()]
        graph = traced(scanned(steps), inputs)
        text = module_text("m", [graph], "model")
        assert text.count('"stablehlo.while"') == 1
        texts.append(text + module_text("m", [gradient_graph(graph)], "model"))
    short, long = texts
    # The number of steps is written where it is an extent or a bound, and nowhere else.
    assert len(long.splitlines()) == len(short.splitlines())
    assert len(long) <= len(short) * 1.05


def test_a_body_reads_nothing_but_its_arguments() -> None:
    for outside in (Input("outside"), Parameter()):
        tensor = Tensor(TensorType((3,), DType.F32), outside)

        def body(state: Tensor, tensor: Tensor = tensor) -> Tensor:
            return state + tensor

        with pytest.raises(DslError, match=r"the body of scan: .*belongs to"):
            ops.scan(zeros(3), body=body, sequences=0, steps=2, reverse=False, keep="last")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequences": 3}, "expected an initial state and 3 sequences"),
        ({"steps": 0}, "expected at least one step"),
        ({"keep": "first"}, "expected keep to be all or last"),
        ({"steps": 5}, "expected sequences of 5 steps"),
        (
            {"body": lambda _, row, __: row * 2.0},
            r"expected a body that gives .*f32\[3\], not f32\[2\]",
        ),
    ],
)
def test_a_wrong_scan_is_refused(changes: dict[str, Any], message: str) -> None:
    right = {"body": lambda state, *_: state, "sequences": 1, "steps": 4, "reverse": False}
    with pytest.raises(TypeRuleError, match=rf"scan\(f32\[3\].*{message}"):
        ops.scan(zeros(3), zeros(4, 2), zeros(3), **{**right, "keep": "all", **changes})


def zeros(*shape: int) -> Tensor:
    return ops.full(shape=shape, dtype=DType.F32, value=0.0)


def test_a_loop_in_a_loop_compiles(tmp_path: Path) -> None:
    """Names of values are unique in nested regions, and the inner loop may read the outer rows."""

    def outer(state: Tensor, x: Tensor) -> Tensor:
        inner = {"body": lambda h, u: ops.tanh(h + u), "sequences": 0, "steps": 2}
        return ops.scan(state, x, **inner, reverse=False, keep="last") + x

    def function(initial: Tensor, xs: Tensor) -> Tensor:
        return ops.scan(initial, xs, body=outer, sequences=1, steps=3, reverse=True, keep="all")

    rng = np.random.default_rng(2)
    inputs = [rng.normal(size=shape).astype(np.float32) for shape in ((4,), (3, 4))]
    compiled = Compiled([traced(function, inputs)], tmp_path)
    np.testing.assert_allclose(compiled("graph", *inputs)[0], run(function, *inputs), rtol=1e-6)


# --- what the compiler overwrites beside a loop


def shrunk(state: Tensor, add: Tensor, ids: Tensor) -> Tensor:
    """A body that scatters; every turn and other nodes share its zeros."""
    zeros = ops.full_like(state, 0.0)
    return ops.tanh(state * 0.5 + ops.scatter(zeros, ids, state * add, combine="add"))


def beside_a_loop(x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
    zeros = ops.full_like(x, 0.0)
    states = ops.scan(
        zeros + x, x, ids, body=shrunk, sequences=0, steps=50, reverse=False, keep="last"
    )
    return states, ops.scatter(zeros, ids, x, combine="add")


def test_scatters_into_full_are_right_in_and_beside_a_loop(tmp_path: Path) -> None:
    """Large enough that the loop still runs when what follows could overwrite something.

    Rounding grows over the steps to 5e-6; what was overwritten would be off by more than 1.
    """
    rng = np.random.default_rng(3)
    x, ids = rng.normal(size=(64, 64)).astype(np.float32), rng.permutation(64).astype(np.int32)
    graph = trace("graph", beside_a_loop, {"x": type_of(x), "ids": type_of(ids)})
    compiled = Compiled([graph], tmp_path)
    for actual, expected in zip(
        compiled("graph", x, ids), evaluate(graph, [x, ids], {}), strict=True
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_an_update_of_what_a_loop_may_still_read_is_refused() -> None:
    loop = {"sequences": 0, "steps": 2, "reverse": False, "keep": "last"}

    def written_in_the_body(state: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        return ops.scatter(x, ids, state, combine="add")

    def inside(x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        return (ops.scan(x, x, ids, body=written_in_the_body, **loop),)

    def outside(x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        last = ops.scan(x, x, body=lambda state, x: state + x, **loop)
        return last, ops.scatter(x, ids, x, combine="replace")

    inputs = {"x": TensorType((4, 2), DType.F32), "ids": TensorType((4,), DType.I32)}
    for function in (inside, outside):
        with pytest.raises(DslError, match="with a loop, scatter starts from full"):
            module_text("m", [trace("f", function, inputs)], "model")
    graph = trace("f", beside_a_loop, inputs, in_place={0: 0})
    with pytest.raises(DslError, match="f: a function with a loop has no results in place"):
        module_text("m", [graph], "model")
