"""Trace a function on the types of arrays, run it in NumPy, and take its gradient two ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.gradient import gradients
from hearthd.models.dsl.graph import Graph, Input, Tensor, make_graph
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

STEP = 1e-5  # central differences: errors of STEP^2 and of 1e-16 / STEP, both near 1e-10
TOLERANCE = 1e-6
MAX_DIRECTIONS = 12


def type_of(array: Array) -> TensorType:
    return TensorType(array.shape, DType.of(array.dtype))


def traced(function: Callable[..., Tensor], arrays: Sequence[Array], name: str = "graph") -> Graph:
    """The graph of a function of one result, on void tensors of these arrays' types."""
    inputs = {f"x{i}": type_of(array) for i, array in enumerate(arrays)}
    return trace(name, lambda *tensors: (function(*tensors),), inputs)


def run(function: Callable[..., Tensor], *arrays: Array) -> Array:
    """The function's value on these arrays, by the NumPy interpreter."""
    (value,) = evaluate(traced(function, arrays), arrays, {})
    return value


def float_inputs(graph: Graph) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in graph.inputs if tensor.dtype.is_float)


def gradient_graph(graph: Graph, name: str = "gradient") -> Graph:
    """(inputs, upstream) -> one gradient for each float input, in reverse mode."""
    (output,) = graph.outputs
    upstream = Tensor(output.type, Input("upstream"))
    results = gradients(graph, (upstream,), float_inputs(graph))
    return make_graph(name, (*graph.inputs, upstream), results, {}, {})


def value_and_gradients(graph: Graph, name: str) -> Graph:
    """(inputs, upstream) -> the value, and what `gradient_graph` gives, as one function."""
    gradient = gradient_graph(graph, name)
    return make_graph(name, gradient.inputs, (*graph.outputs, *gradient.outputs), {}, {})


def check_gradient(graph: Graph, arrays: Sequence[Array], rng: np.random.Generator) -> int:
    """Compare reverse mode with central differences in float64; the number of inputs compared.

    Both give the derivative of sum(upstream * graph(arrays)) along directions of each input: along
    each element of a small one, and along random unit vectors of a larger one.
    """
    (output,) = graph.outputs
    assert output.dtype is DType.F64, "finite differences need float64"
    upstream = rng.normal(size=output.shape)
    actual = evaluate(gradient_graph(graph), [*arrays, upstream], {})
    places = [i for i, array in enumerate(arrays) if array.dtype == np.float64]
    for gradient, place in zip(actual, places, strict=True):
        assert gradient.shape == arrays[place].shape
        directions = _directions(arrays[place].shape, rng)
        along = np.tensordot(directions, gradient, gradient.ndim)
        expected = _central_differences(graph, arrays, place, upstream, directions)
        np.testing.assert_allclose(along, expected, rtol=TOLERANCE, atol=TOLERANCE)
    return len(places)


def _directions(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """At most MAX_DIRECTIONS unit vectors of a shape."""
    size = int(np.prod(shape))
    if size <= MAX_DIRECTIONS:
        return np.eye(size).reshape(size, *shape)
    vectors = rng.normal(size=(MAX_DIRECTIONS, size))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.reshape(MAX_DIRECTIONS, *shape)


def _central_differences(
    graph: Graph, arrays: Sequence[Array], place: int, upstream: Array, directions: Array
) -> Array:
    """Derivatives of sum(upstream * graph(arrays)) along directions of the array at `place`."""
    result = np.zeros(len(directions))
    for index, direction in enumerate(directions):
        sides = []
        for step in (STEP, -STEP):
            moved = arrays[place] + step * direction
            (value,) = evaluate(graph, [*arrays[:place], moved, *arrays[place + 1 :]], {})
            sides.append(float((upstream * value).sum()))
        result[index] = (sides[0] - sides[1]) / (2 * STEP)
    return result
