"""Every op of the registry, on every one of its samples: shape rule, value, gradient, lowering."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from models.dsl.evaluate import evaluate
from models.dsl.gradient import gradients
from models.dsl.graph import Graph, Input, Tensor
from models.dsl.ops import (
    REGISTRY,
    Lowering,
    NoGradient,
    Op,
    Sample,
    add,
    maximum,
    multiply,
    reduce_max,
    subtract,
    transpose,
)
from models.dsl.types import DslError, DType, NoGradientError
from tests.models.compiled import Compiled
from tests.models.graphs import (
    check_gradient,
    float_inputs,
    gradient_graph,
    run,
    traced,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One sample of one op."""

    op: Op
    number: int

    @property
    def name(self) -> str:
        return f"{self.op.name}_{self.number}"

    @property
    def sample(self) -> Sample:
        return self.op.samples(np.random.default_rng(len(self.op.name)))[self.number]

    def graph(self, sample: Sample | None = None) -> Graph:
        own = sample or self.sample
        return traced(lambda *tensors: self.op(*tensors, **own.attrs), own.inputs, self.name)


def cases(ops: list[Op]) -> list[Case]:
    rng = np.random.default_rng(0)
    return [Case(op, number) for op in ops for number in range(len(op.samples(rng)))]


OPS = list(REGISTRY.values())
CASES = cases(OPS)
DIFFERENTIABLE = [op for op in OPS if not isinstance(op.vjp, NoGradient)]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def in_float64(sample: Sample) -> Sample:
    def wider(value: object) -> object:
        return DType.F64 if value is DType.F32 else value

    inputs = tuple(x.astype(np.float64) if x.dtype == np.float32 else x for x in sample.inputs)
    return Sample(inputs, {key: wider(value) for key, value in sample.attrs.items()})


# --- the checks, each a function so that a broken op can be shown to fail it


def check_infer(case: Case) -> None:
    """The shape rule tells the type of the value."""
    sample = case.sample
    inferred = case.op.infer(tuple(type_of(array) for array in sample.inputs), sample.attrs)
    assert inferred == type_of(case.op.evaluate(sample.inputs, sample.attrs))


def check_reverse_mode(case: Case) -> None:
    """Every float input's gradient equals finite differences."""
    sample = in_float64(case.sample)
    graph = case.graph(sample)
    if float_inputs(graph):
        compared = check_gradient(graph, sample.inputs, np.random.default_rng(1))
        assert compared == len(float_inputs(graph))


def check_compiled(case: Case, compiled: Compiled) -> None:
    """The program gives NumPy's value and NumPy's gradient."""
    inputs, graph = case.sample.inputs, case.graph()
    (value,) = evaluate(graph, inputs, {})
    (found,) = compiled(case.name, *inputs)
    assert_close(found, value)
    if has_gradient(case):
        upstream = upstream_for(graph)
        wanted = evaluate(gradient_graph(graph), [*inputs, upstream], {})
        for gradient, expected in zip(
            compiled(f"{case.name}_gradient", *inputs, upstream), wanted, strict=True
        ):
            assert_close(gradient, expected)


def assert_close(found: Array, wanted: Array) -> None:
    """Floats to 1e-5: f32 has 6e-8, vector libm a few times that, sums of up to 15 terms more."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if wanted.dtype == np.float32:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    else:  # integers, booleans, and bf16 out of one rounding: exact
        assert np.array_equal(found, wanted)


def has_gradient(case: Case) -> bool:
    return not isinstance(case.op.vjp, NoGradient) and bool(float_inputs(case.graph()))


def upstream_for(graph: Graph) -> Array:
    (output,) = graph.outputs
    return np.random.default_rng(2).normal(size=output.shape).astype(output.dtype.numpy)


# --- every op, every sample


@each_case
def test_infer_is_the_type_of_the_value(case: Case) -> None:
    check_infer(case)


@pytest.mark.parametrize("case", cases(DIFFERENTIABLE), ids=lambda case: case.name)
def test_gradient_equals_finite_differences(case: Case) -> None:
    check_reverse_mode(case)


@each_case
def test_compiled_equals_numpy(case: Case, compiled: Compiled) -> None:
    check_compiled(case, compiled)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_samples_are_few_small_and_differ(op: Op) -> None:
    samples = op.samples(np.random.default_rng(0))
    assert 1 <= len(samples) <= 4
    for sample in samples:
        result = op.evaluate(sample.inputs, sample.attrs)
        assert all(array.ndim <= 4 and array.size < 1000 for array in (*sample.inputs, result))


def test_no_op_is_left_out() -> None:
    assert {case.op.name for case in CASES} == set(REGISTRY)
    assert len(OPS) == len(REGISTRY)


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_a_differentiable_op_has_a_float_sample(op: Op) -> None:
    numbers = range(len(op.samples(np.random.default_rng(0))))
    assert any(has_gradient(Case(op, number)) for number in numbers)


@pytest.mark.parametrize(
    "op", [op for op in OPS if isinstance(op.vjp, NoGradient)], ids=lambda op: op.name
)
def test_an_op_without_gradient_says_why(op: Op) -> None:
    assert isinstance(op.vjp, NoGradient)
    assert op.vjp.reason
    graph = Case(op, 0).graph()
    if not graph.inputs:
        return  # nothing that a gradient could be asked of
    upstream = (Tensor(graph.outputs[0].type, Input("upstream")),)
    with pytest.raises(NoGradientError) as caught:
        gradients(graph, upstream, graph.inputs)
    assert op.name in str(caught.value)
    assert op.vjp.reason in str(caught.value)


def test_equal_largest_elements_share_the_gradient() -> None:
    """Where finite differences say nothing: the subgradient that each docstring states."""
    x, y = np.array([[2, 2, 1]], np.float32), np.array([[2, 3, 0]], np.float32)
    largest = traced(lambda x: reduce_max(x, axes=(1,)), [x])
    (found,) = evaluate(gradient_graph(largest), [x, np.ones(1, np.float32)], {})
    assert found.tolist() == [[0.5, 0.5, 0]]
    first, second = evaluate(gradient_graph(traced(maximum, [x, y])), [x, y, np.ones_like(x)], {})
    assert first.tolist() == [[1, 0, 1]]
    assert second.tolist() == [[0, 1, 0]]


# --- declaring an op


@contextmanager
def broken(op: Op, **changes: Any) -> Iterator[Op]:
    """A variant of an op under another name, registered for as long as the context."""
    name = f"broken_{op.name}"
    try:
        yield replace(op, name=name, **changes)
    finally:
        del REGISTRY[name]


@pytest.mark.parametrize("missing", [field.name for field in fields(Op)])
def test_every_field_of_an_op_is_required(missing: str) -> None:
    before = dict(REGISTRY)
    given = {field.name: getattr(add, field.name) for field in fields(Op)} | {"name": "new"}
    del given[missing]
    with pytest.raises(TypeError, match=missing):
        Op(**given)
    assert before == REGISTRY


def test_a_name_cannot_be_used_twice() -> None:
    before = dict(REGISTRY)
    with pytest.raises(DslError, match="two ops called 'add'"):
        replace(add, evaluate=subtract.evaluate)
    assert before == REGISTRY
    assert REGISTRY["add"] is add


# --- each check sees the mistake that it is there for


def test_a_flipped_sign_in_a_gradient_is_seen() -> None:
    with broken(subtract, vjp=lambda g, *_: (g, g)) as op, pytest.raises(AssertionError):
        check_reverse_mode(Case(op, 0))


def test_a_wrong_permutation_in_a_gradient_is_seen() -> None:
    """The order itself in place of its inverse: on the sample whose order is no involution."""

    def same_order(g: Tensor, _: object, __: object, attrs: Any) -> tuple[Tensor]:
        return (transpose(g, order=attrs["order"]),)

    with broken(transpose, vjp=same_order) as op:
        check_reverse_mode(Case(op, 0))  # (1, 0) is its own inverse: it cannot tell
        with pytest.raises(DslError, match="a vjp gave"):
            check_reverse_mode(Case(op, 1))


def test_a_missing_share_of_a_gradient_is_seen() -> None:
    with broken(multiply, vjp=lambda g, xs, *_: (g * xs[1], g * xs[1])) as op:
        check_infer(Case(op, 0))  # the value is right
        with pytest.raises(AssertionError):
            check_reverse_mode(Case(op, 0))


def test_a_wrong_shape_rule_is_seen() -> None:
    with broken(transpose, infer=lambda types, _: types[0]) as op:
        with pytest.raises(AssertionError):
            check_infer(Case(op, 0))
        with pytest.raises(DslError, match="broken_transpose: wanted f32"):
            run(lambda x: op(x, order=(1, 0)), np.zeros((2, 3), np.float32))


def test_a_value_of_a_wrong_dtype_is_seen() -> None:
    with broken(add, evaluate=lambda xs, _: (xs[0] + xs[1]).astype(np.float64)) as op:
        with pytest.raises(AssertionError):
            check_infer(Case(op, 0))
        with pytest.raises(DslError, match=r"broken_add: wanted f32\[2\], got f64\[2\]"):
            run(op, np.zeros(2, np.float32), np.zeros(2, np.float32))


def test_a_wrong_lowering_is_seen(compiled: Compiled) -> None:
    """`broken_subtract_0` in the compiled module adds."""
    with broken(subtract) as op, pytest.raises(AssertionError):
        check_compiled(Case(op, 0), compiled)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Every case and its gradient, and one op whose lowering is wrong, as one module."""
    graphs = []
    with broken(subtract, lower=lambda *_: Lowering("stablehlo.add")) as op:
        for case in [*CASES, Case(op, 0)]:
            graphs.append(case.graph())
            if has_gradient(case):
                graphs.append(gradient_graph(graphs[-1], f"{case.name}_gradient"))
        return Compiled(graphs, tmp_path_factory.mktemp("ops"))
