"""What every op must pass, on each of its samples. A check is a function, so that a test can show
it a broken op."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.fused.norm_kernels import norm_rope
from hearthd.models.dsl.gradient import gradients
from hearthd.models.dsl.graph import Graph, Input, Tensor, make_graph
from hearthd.models.dsl.ops import REGISTRY, NoGradient, Op, Sample
from hearthd.models.dsl.ops.record import zero_gradient
from hearthd.models.dsl.types import DType, NoGradientError, TensorType, TypeRuleError
from tests.models.graphs import (
    check_gradient,
    float_inputs,
    gradient_graph,
    traced,
    type_of,
    value_and_gradients,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tests.models.compiled import Compiled

    Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One sample of one op."""

    op: Op
    number: int

    @property
    def name(self) -> str:
        """What the function of this case is called in the compiled module."""
        return f"{self.op.name}_{self.number}"

    @property
    def sample(self) -> Sample:
        return samples_of(self.op)[self.number]

    def graph(self, sample: Sample | None = None) -> Graph:
        sample = sample or self.sample
        return traced(lambda *tensors: self.op(*tensors, **sample.attrs), sample.inputs, self.name)

    def has_gradient(self) -> bool:
        graph = self.graph()
        floats = float_inputs(graph) and graph.outputs[0].dtype.is_float
        return bool(floats) and not isinstance(self.op.vjp, NoGradient)

    def compiled_graphs(self) -> list[Graph]:
        """(inputs, upstream) -> the value and the gradients of the float inputs.

        They are one function to compile, or one for each result of RMSNorm and RoPE: of their
        gradients in one function, IREE 3.13.0 makes a dispatch that it then refuses ("does not
        dominate this use").
        """
        graph = self.graph()
        if not self.has_gradient():
            return [graph]
        whole = value_and_gradients(graph, self.name)
        if self.op is not norm_rope:
            return [whole]
        return [
            make_graph(f"{whole.name}_{i}", whole.inputs, (output,), {}, {})
            for i, output in enumerate(whole.outputs)
        ]


def samples_of(op: Op) -> list[Sample]:
    return op.samples(np.random.default_rng(0))


def cases(op: Op) -> list[Case]:
    return [Case(op, number) for number in range(len(samples_of(op)))]


def check_op(op: Op, compiled: Compiled) -> None:
    """Raises AssertionError, naming the op, the sample and the check.

    The first sample is compiled. `check_all_compiled` compiles all, and their gradients.
    """
    every = cases(op)
    assert 1 <= len(every) <= 4, f"{op.name} has {len(every)} samples"
    assert isinstance(op.vjp, NoGradient) or any(case.has_gradient() for case in every), (
        f"{op.name} has a gradient and no sample with a float input"
    )
    for check in CHECKS:
        run_check(check, every, compiled)
    run_check(compiled_equals_numpy, every[:1], compiled)


def check_all_compiled(op: Op, compiled: Compiled) -> None:
    """As `check_op`: what is compiled of all samples, and of their gradients."""
    run_check(compiled_gradients_equal_numpy, cases(op), compiled)


def run_check(
    check: Callable[[Case, Compiled], None], every: Sequence[Case], compiled: Compiled
) -> None:
    for case in every:
        try:
            check(case, compiled)
        except (Exception, pytest.fail.Exception) as error:
            what = check.__name__.replace("_", " ")
            raise AssertionError(
                f"{case.op.name}, sample {case.number}: {what}: {error}"
            ) from error


def samples_are_small(case: Case, _: Compiled) -> None:
    sample = case.sample
    result = case.op.evaluate(sample.inputs, sample.attrs)
    assert all(array.ndim <= 4 and array.size <= 1024 for array in (*sample.inputs, result))


def inputs_are_counted(case: Case, _: Compiled) -> None:
    """One input less or more is refused, unless the samples show different numbers of them."""
    if len({len(sample.inputs) for sample in samples_of(case.op)}) > 1:
        return
    tensors = [Tensor(type_of(array), Input("x")) for array in case.sample.inputs]
    for wrong in (tensors[:-1], [*tensors, *(tensors or [Tensor(SCALAR, Input("x"))])[-1:]]):
        if len(wrong) == len(tensors):
            continue
        with pytest.raises(TypeRuleError, match=case.op.name):
            case.op(*wrong, **case.sample.attrs)


def infer_is_the_type_of_the_value(case: Case, _: Compiled) -> None:
    for sample in (case.sample, in_float64(case.sample)):
        inferred = case.op.infer(tuple(type_of(array) for array in sample.inputs), sample.attrs)
        value = case.op.evaluate(sample.inputs, sample.attrs)
        assert inferred == type_of(value), f"inferred {inferred}, got {type_of(value)}"


def gradient_equals_finite_differences(case: Case, _: Compiled) -> None:
    """Of every float input, in float64, for a random upstream gradient.

    Not of a result that is rounded to a narrow float, which is a staircase. No gradient flows
    through an op whose rule is `zero_gradient`: it is zero.
    """
    sample = in_float64(case.sample)
    graph = case.graph(sample)
    if not case.has_gradient() or graph.outputs[0].dtype is not DType.F64:
        return
    if case.op.vjp is zero_gradient:
        upstream = np.ones(graph.outputs[0].shape)
        for gradient in evaluate(gradient_graph(graph), [*sample.inputs, upstream], {}):
            assert not gradient.any()
    else:
        compared = check_gradient(graph, sample.inputs, np.random.default_rng(1))
        assert compared == len(float_inputs(graph)), f"{compared} inputs were compared"


def gradient_is_refused_with_the_reason(case: Case, _: Compiled) -> None:
    if not isinstance(case.op.vjp, NoGradient):
        return
    assert case.op.vjp.reason, "no reason is given"
    graph = case.graph()
    if graph.inputs:  # else there is nothing that a gradient could be asked of
        upstream = (Tensor(graph.outputs[0].type, Input("upstream")),)
        with pytest.raises(NoGradientError) as caught:
            gradients(graph, upstream, graph.inputs)
        assert str(caught.value) == f"{case.op.name} has no gradient: {case.op.vjp.reason}"


def compiled_equals_numpy(case: Case, compiled: Compiled) -> None:
    """The value; a gradient is a graph of other ops."""
    _graphs_equal_numpy([case.graph()], case.sample.inputs, compiled)


def compiled_gradients_equal_numpy(case: Case, compiled: Compiled) -> None:
    """The value, and the gradient of every float input."""
    inputs = list(case.sample.inputs)
    if case.has_gradient():
        (output,) = case.graph().outputs
        random = np.random.default_rng(2).normal(size=output.shape)
        inputs.append(np.asarray(random, output.dtype.numpy))
    _graphs_equal_numpy(case.compiled_graphs(), inputs, compiled)


def _graphs_equal_numpy(
    graphs: Iterable[Graph], inputs: Sequence[NDArray[Any]], compiled: Compiled
) -> None:
    for graph in graphs:
        results = zip(compiled(graph.name, *inputs), evaluate(graph, inputs, {}), strict=True)
        for actual, expected in results:
            assert_close(actual, expected)


CHECKS: tuple[Callable[[Case, Compiled], None], ...] = (
    samples_are_small,
    infer_is_the_type_of_the_value,
    inputs_are_counted,
    gradient_equals_finite_differences,
    gradient_is_refused_with_the_reason,
)
SCALAR = TensorType((), DType.F32)


def in_float64(sample: Sample) -> Sample:
    def wider(value: object) -> object:
        return DType.F64 if value is DType.F32 else value

    inputs = tuple(x.astype(np.float64) if x.dtype == np.float32 else x for x in sample.inputs)
    return Sample(inputs, {key: wider(value) for key, value in sample.attrs.items()})


def assert_close(actual: Array, expected: Array) -> None:
    """Floats to 1e-5: f32 has 6e-8, vector libm a few times that, sums of up to 15 terms more."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if expected.dtype == np.float32:
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    else:  # integers, booleans, and bf16 out of one rounding: exact
        assert np.array_equal(actual, expected)


@contextmanager
def broken(op: Op, **changes: Any) -> Iterator[Op]:
    """A variant of an op under another name, registered for as long as the context."""
    name = f"broken_{op.name}"
    try:
        yield replace(op, name=name, **changes)
    finally:
        del REGISTRY[name]
