"""Python's operators on tensors: their values are NumPy's, and `==` compares identity."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import OPERATORS, Input, Tensor
from hearthd.models.dsl.types import DType, TensorType
from tests.models.graphs import gradient_graph, run, traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]

X = np.array([1, 2, 4], np.float32)
Y = np.array([4, 2, 1], np.float32)
CUBE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x + 2, X + 2), (lambda x: 2 + x, X + 2),
        (lambda x: x - 2, X - 2), (lambda x: 2 - x, 2 - X),
        (lambda x: x * 3, X * 3), (lambda x: 3 * x, X * 3),
        (lambda x: x / 2, X / 2), (lambda x: 2 / x, 2 / X),
        (lambda x: x**2, X**2), (lambda x: 2**x, 2**X),
        (lambda x: x + x, X + X), (lambda x: x - x * x, X - X * X), (lambda x: x / x, X / X),
        (lambda x: -x, -X), (lambda x: x @ x, X @ X),
        (lambda x: x + np.float32(2), X + 2), (lambda x: x - np.int64(2), X - 2),
    ],
)  # fmt: skip
def test_arithmetic(function: Callable[[Tensor], Tensor], expected: Array) -> None:
    assert np.array_equal(run(function, X), expected)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integers_have_a_negative(dtype: Any) -> None:
    x = np.array([1, -2, 0, np.iinfo(dtype).min], dtype)
    assert np.array_equal(run(operator.neg, x), -x)


@pytest.mark.parametrize(
    ("compare", "numpy"),
    [*((compare, compare) for compare in COMPARISONS), (f.eq, np.equal), (f.ne, np.not_equal)],
)
def test_comparisons(compare: Callable[[Any, Any], Any], numpy: Callable[..., Any]) -> None:
    assert np.array_equal(run(compare, X, Y), numpy(X, Y))
    assert np.array_equal(run(lambda x: compare(x, 2), X), numpy(X, 2))
    assert run(compare, X, Y).dtype == np.bool_


@pytest.mark.parametrize("compare", COMPARISONS)
def test_a_number_may_stand_on_the_left(compare: Callable[[Any, Any], Any]) -> None:
    assert np.array_equal(run(lambda x: compare(2, x), X), compare(2, X))


def test_double_equals_compares_identity() -> None:
    """So that tensors are keys of mappings, and members of lists."""
    x, y = (Tensor(TensorType((2,), DType.F32), Input("x")) for _ in range(2))
    assert x == x
    assert x != y
    assert len({x, y, x}) == 2
    assert y not in [x]


# --- x[...]

bounds = st.one_of(st.none(), st.integers(-6, 6))
keys = st.lists(
    st.one_of(
        st.integers(-3, 2),
        st.none(),
        st.builds(slice, bounds, bounds, st.one_of(st.none(), st.integers(1, 4))),
    ),
    max_size=4,
)


@given(keys, st.integers(0, 4), st.booleans())
def test_subscripts(chosen: list[Any], place: int, with_ellipsis: bool) -> None:
    if with_ellipsis:
        chosen.insert(place, ...)
    key = tuple(chosen)
    if sum(part is not None and part is not ... for part in key) > CUBE.ndim:
        return
    expected = CUBE[key]
    if expected.size:
        assert np.array_equal(run(lambda x: x[key], CUBE), expected)


@pytest.mark.parametrize("key", [1, -1, slice(1, 3), None, ..., np.int32(2), ()], ids=str)
def test_a_subscript_that_is_not_a_tuple(key: Any) -> None:
    assert np.array_equal(run(lambda x: x[key], CUBE), CUBE[key])


def test_the_gradient_of_a_subscript_is_zero_elsewhere() -> None:
    graph = traced(lambda x: x[1, None, ::2], [CUBE.astype(np.float64)])
    upstream = np.arange(1.0, 11.0).reshape(1, 2, 5)
    (gradient,) = evaluate(gradient_graph(graph), [CUBE.astype(np.float64), upstream], {})
    expected = np.zeros(CUBE.shape)
    expected[1, None, ::2] = upstream
    assert np.array_equal(gradient, expected)


# --- stop_gradient


def test_no_gradient_flows_through_stop_gradient() -> None:
    graph = traced(lambda x: x * ops.stop_gradient(x * x), [X])
    value, upstream = X**3, np.ones_like(X)
    assert np.array_equal(evaluate(graph, [X], {})[0], value)
    (gradient,) = evaluate(gradient_graph(graph), [X, upstream], {})
    assert np.array_equal(gradient, X * X)  # not 3 X^2


def test_the_gradient_of_a_stopped_tensor_is_zero() -> None:
    (gradient,) = evaluate(gradient_graph(traced(ops.stop_gradient, [X])), [X, X], {})
    assert np.array_equal(gradient, np.zeros_like(X))


def test_stop_gradient_passes_what_has_no_gradient() -> None:
    """As in an argmax that a loss reads: no op behind it is asked for a gradient."""
    graph = traced(lambda x: x * ops.stop_gradient(ops.sign(x)), [X])
    (gradient,) = evaluate(gradient_graph(graph), [X, X], {})
    assert np.array_equal(gradient, X)


def test_every_operator_is_documented() -> None:
    """In the page that test_registry.py compares with the registry."""
    text = (Path(__file__).parents[4] / "docs" / "operators.md").read_text(encoding="utf-8")
    for written in OPERATORS:
        assert written == "fill" or f"| `{written}` |" in text
