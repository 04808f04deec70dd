"""Tracing: void tensors, what is refused and by what words, and the interpreter's own checks."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.gradient import gradients
from hearthd.models.dsl.graph import Graph, Input, Tensor, make_graph
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import (
    DslError,
    DType,
    NoGradientError,
    TensorType,
    TypeRuleError,
    VoidError,
)
from tests.models.graphs import run, traced

if TYPE_CHECKING:
    from collections.abc import Callable

F32 = DType.F32
X = np.array([1, 2, 4], np.float32)


def void(*shape: int, dtype: DType = F32) -> Tensor:
    return Tensor(TensorType(shape, dtype), Input("x"))


def graph_of(output: Tensor, *inputs: Tensor) -> Graph:
    return make_graph("g", inputs, (output,), {}, {})


# --- no data while tracing


@pytest.mark.parametrize(
    "ask",
    [
        bool, float, int, len, iter, list, np.asarray, np.sum, range,
        lambda x: 1 if x else 0, lambda x: [*x], lambda x: [1, 2][x], lambda x: np.ones(2) + x,
    ],
)  # fmt: skip
def test_data_of_a_void_tensor_is_refused(ask: Callable[[Any], object]) -> None:
    with pytest.raises(VoidError, match=r"<input x: f32\[2, 3\]> is void"):
        ask(void(2, 3))


def test_a_void_tensor_says_where_it_comes_from() -> None:
    x = void(2)
    assert repr(x) == "<input x: f32[2]>"
    assert repr(x + x) == "<add: f32[2]>"
    assert repr(nn.parameter(3, 4, dtype=DType.BF16)) == "<parameter: bf16[3, 4]>"


# --- what ops refuse: the message names the op and the types


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (lambda: void(2) + void(3), r"add\(f32\[2\], f32\[3\]\): expected inputs"),
        (lambda: void(2) * void(2, dtype=DType.I32), r"multiply\(f32\[2\], i32\[2\]\)"),
        (lambda: ops.tanh(void(2, dtype=DType.I32)), r"tanh\(i32\[2\]\): expected one of bf16"),
        (lambda: ops.reshape(void(2, 3), shape=(4,)), r"reshape\(f32\[2, 3\], shape=\(4,\)\)"),
        (lambda: ops.reshape(void(2, 3)), "reshape: the attribute 'shape' is missing"),
        (lambda: ops.full(shape=(2,), dtype=DType.F32), "full: the attribute 'value' is missing"),
        (lambda: ops.add(void(2), void(2), axis=0), "add: there is no attribute 'axis'"),
        (lambda: ops.transpose(void(2, 3), order=(0, 0)), "expected an order of 2 axes"),
        (lambda: ops.broadcast(void(2), shape=(3, 3), axes=(1,)), "expected extents of 1, or"),
        (lambda: ops.broadcast(void(2, 3), shape=(3, 2), axes=(1, 0)), "expected 2 rising axes"),
        (lambda: ops.slice_(void(4), bounds=((2, 5, 1),)), r"slice\(f32\[4\].*inside each extent"),
        (lambda: ops.pad(void(4), padding=((-1, 0, 0),)), "none negative"),
        (lambda: ops.concatenate(void(2, 3), void(2, 4), axis=0), "differ along axis 0 only"),
        (lambda: ops.gather(void(2, 3), void(2), axis=0), "i32 indices"),
        (lambda: ops.reduce_sum(void(2, 3), axes=(1, 0)), "expected rising axes below 2"),
        (lambda: ops.select(void(2), void(2), void(2)), "a bool input"),
        (lambda: ops.compare(void(2), void(2), direction="??"), "a direction of EQ, NE"),
        (lambda: ops.project(void(2, 3), void(4, 5), dtype=F32), r"project\(f32.*f32.*: exp"),
        (lambda: ops.constant(value=np.zeros(4097, np.float32)), "at most 4096 elements"),
        (lambda: ops.constant(value=np.zeros(2, np.uint8)), "no dtype for NumPy's uint8"),
        (lambda: void(0), "extents must be positive integers"),
        (lambda: DType.named("f8"), "unknown dtype 'f8', expected one of bool, i8"),
    ],
)  # fmt: skip
def test_a_type_rule_names_the_op_and_its_types(apply: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeRuleError, match=message):
        apply()


@pytest.mark.parametrize(
    ("contract", "message"),
    [(((1,), (0,)), "equal contracted extents"), (((7,), (0,)), "axes below 2")],
)
def test_dot_general_refuses(contract: object, message: str) -> None:
    with pytest.raises(TypeRuleError, match=message):
        ops.dot_general(void(2, 3), void(4, 3), batch=((), ()), contract=contract, dtype=F32)


# --- what a trace refuses


def test_a_parameter_without_a_module_is_refused() -> None:
    weight = nn.parameter(2, dtype=F32)
    with pytest.raises(DslError, match=r"g: <parameter: f32\[2\]> belongs to no module"):
        trace("g", lambda x: (x + weight,), {"x": weight.type})


def test_an_input_of_another_trace_is_refused() -> None:
    old = void(2)
    with pytest.raises(DslError, match="second: input x belongs to another trace"):
        trace("second", lambda new: (new + old,), {"new": old.type})


def test_in_place_needs_one_type() -> None:
    inputs = {"x": TensorType((2, 3), F32)}
    with pytest.raises(DslError, match=r"g: output 0 \(f32\[6\]\) cannot take the storage of inp"):
        trace("g", lambda x: (ops.reshape(x, shape=(6,)),), inputs, in_place={0: 0})
    assert trace("g", lambda x: (x + 1,), inputs, in_place={0: 0}).in_place == {0: 0}


# --- modules


class Pair(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(32, 16, bias=True)
        self.blocks = [nn.RMSNorm(3, 1e-6), nn.RMSNorm(3, 1e-6)]
        self.width = 3


def test_the_path_of_attributes_is_the_parameter_s_name() -> None:
    names = {name: str(tensor.type) for name, tensor in Pair().parameters().items()}
    assert names == {
        "first.weight": "f32[16, 32]",
        "first.bias": "f32[16]",
        "blocks.0.weight": "f32[3]",
        "blocks.1.weight": "f32[3]",
    }


def test_a_graph_keeps_the_parameters_that_it_reads() -> None:
    module = Pair()
    graph = trace(
        "g", lambda x: (module.blocks[1](x),), {"x": TensorType((2, 3), F32)},
        parameters=module.parameters(),
    )  # fmt: skip
    assert list(graph.parameters) == ["blocks.1.weight"]


# --- the interpreter


def double(name: str = "g") -> Graph:
    return traced(lambda x: x + x, [X], name)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (X.astype(np.float64), r"g: expected f32\[3\], got f64\[3\]"),
        (X[:2], r"g: expected f32\[3\], got f32\[2\]"),
        (X.astype(np.uint16), "no dtype for NumPy's uint16"),
    ],
)
def test_arrays_of_another_type_are_refused(array: np.ndarray[Any, Any], message: str) -> None:
    with pytest.raises(DslError, match=message):
        evaluate(double(), [array], {})


def test_a_wrong_number_of_inputs_is_refused() -> None:
    with pytest.raises(DslError, match="g: expected 1 inputs, got 2"):
        evaluate(double(), [X, X], {})


def test_weights_of_another_type_are_refused() -> None:
    norm = nn.RMSNorm(3, 1e-6)
    graph = trace("g", lambda x: (norm(x),), {"x": TensorType((3,), F32)},
                  parameters=norm.parameters())  # fmt: skip
    with pytest.raises(DslError, match=r"g: weight: expected f32\[3\], got f32\[4\]"):
        evaluate(graph, [X], {"weight": np.zeros(4, np.float32)})


def test_intermediate_values_are_dropped_after_their_last_use() -> None:
    """A chain of 50 negations of 1 MB needs two or three of them at a time."""

    def chain(x: Tensor) -> Tensor:
        for _ in range(50):
            x = ops.negate(x)
        return x

    array = np.zeros(1 << 18, np.float32)
    graph = traced(chain, [array])
    tracemalloc.start()
    try:
        evaluate(graph, [array], {})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * array.nbytes


def test_one_tensor_may_be_several_outputs() -> None:
    def twice(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        return y, x, y

    graph = trace("g", twice, {"x": TensorType((3,), F32)})
    first, second, third = evaluate(graph, [X], {})
    assert np.array_equal(first, X + 1)
    assert np.array_equal(second, X)
    assert np.array_equal(third, X + 1)


# --- gradients of graphs; test_ops.py has the gradients of ops


def test_a_gradient_that_leads_through_no_gradient_is_refused_only_on_the_way() -> None:
    x, rounded = void(3), void(3)
    graph = graph_of(x + ops.floor(rounded), x, rounded)
    upstream = void(3)
    assert gradients(graph, (upstream,), (x,)) == (upstream,)
    with pytest.raises(NoGradientError, match="floor has no gradient: its derivative"):
        gradients(graph, (upstream,), (rounded,))


def test_an_input_without_effect_has_gradient_zero() -> None:
    x, other = void(3), void(2)
    (gradient,) = gradients(graph_of(x + x, x, other), (void(3),), (other,))
    assert gradient.type == other.type
    # Nor does it matter then whether the output has a gradient at all.
    gradients(graph_of(ops.floor(x), x, other), (void(3),), (other,))
    value = evaluate(graph_of(gradient, x), [X], {})[0]
    assert np.array_equal(value, np.zeros(2))


def test_an_upstream_of_another_type_is_refused() -> None:
    x = void(3)
    with pytest.raises(DslError, match=r"got a gradient of type f32\[2\]"):
        gradients(graph_of(x + x, x), (void(2),), (x,))


def test_python_operators_apply_their_ops() -> None:
    x = np.array([0.5, -2.0], np.float32)
    assert run(lambda x: -x, x).tolist() == [-0.5, 2.0]
    assert run(lambda x: 3.0 - (x + 1.0) * 2.0, x).tolist() == [0.0, 5.0]
    assert run(lambda x: 2.0 ** (x / 0.5), x).tolist() == [2.0, 0.0625]
