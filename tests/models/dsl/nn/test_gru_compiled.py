"""The GRU compiled: its forms give PyTorch's numbers, loops the bits of what they repeat."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.types import DType
from tests.models.compiled import Compiled, compiled_fixture
from tests.models.dsl.nn.gru_cases import (
    CASE,
    FORMS,
    ONE_LAYER,
    Case,
    arrays_of,
    graph_of,
    joined,
    step_graph,
    torch_answers,
)
from tests.models.graphs import gradient_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph

    Array = NDArray[Any]

F32, F64 = DType.F32, DType.F64
ANSWERS = torch_answers()


PLAIN = Case(
    layers=1, bidirectional=False, bias=False, batch_first=False, given_h0=False, steps=5, inputs=3
)
ONCE = dataclasses.replace(CASE, steps=1)
COMPILED = [
    *((CASE, form) for form in FORMS),
    (PLAIN, "loop"),
    (PLAIN, "fused"),
    (ONCE, "loop"),
]
SHORT = dataclasses.replace(ONE_LAYER, steps=2)
NARROW = (DType.F16, DType.BF16)


def all_graphs() -> Iterator[Graph]:
    """Forms of some cases, two gradients, and the step."""
    for case, form in COMPILED:
        yield graph_of(case, form, dtype=F32, name=f"{case.name}_{form}")
    for form in ("loop", "fused"):
        yield gradient_graph(joined(graph_of(SHORT, form, dtype=F32)), f"gradient_{form}")
    for dtype in NARROW:
        yield graph_of(SHORT, "fused", dtype=dtype, name=f"fused_{dtype.label}")
    yield step_graph(dataclasses.replace(ONE_LAYER, layers=2), F32)


compiled = compiled_fixture(all_graphs)


@pytest.mark.parametrize(("case", "form"), COMPILED, ids=str)
def test_compiled_equals_torch(case: Case, form: str, compiled: Compiled) -> None:
    actual = compiled(f"{case.name}_{form}", *arrays_of(case, F32))
    for array, expected in zip(actual, ANSWERS[case.name], strict=True):
        np.testing.assert_allclose(array, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("form", "same_as"), [("loop", "unrolled"), ("blocks", "fused")])
def test_a_compiled_loop_has_the_bits_of_what_it_repeats(
    form: str, same_as: str, compiled: Compiled
) -> None:
    actual, expected = (
        compiled(f"{CASE.name}_{name}", *arrays_of(CASE, F32)) for name in (form, same_as)
    )
    for array, other in zip(actual, expected, strict=True):
        assert np.array_equal(array, other)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.label)
def test_compiled_narrow_floats_equal_numpy(dtype: DType, compiled: Compiled) -> None:
    """Within two roundings of a state below 1: the compiler keeps some intermediates in f32."""
    arrays = arrays_of(SHORT, dtype)
    expected = evaluate(graph_of(SHORT, "fused", dtype=dtype), arrays, {})
    rounding = {DType.F16: 2**-11, DType.BF16: 2**-8}[dtype]
    for array, other in zip(compiled(f"fused_{dtype.label}", *arrays), expected, strict=True):
        difference = array.astype(np.float64) - other.astype(np.float64)
        assert np.abs(difference).max() <= 2 * rounding


@pytest.mark.parametrize("form", ["loop", "fused"])
def test_compiled_gradients_equal_numpy(form: str, compiled: Compiled) -> None:
    graph = gradient_graph(joined(graph_of(SHORT, form)))
    arrays = arrays_of(SHORT)
    upstream = np.random.default_rng(5).normal(size=graph.inputs[-1].shape)
    expected = evaluate(graph, [*arrays, upstream], {})
    narrow = [array.astype(np.float32) for array in (*arrays, upstream)]
    actual = compiled(f"gradient_{form}", *narrow)
    for gradient, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-5, atol=1e-5)


def test_compiled_steps_are_the_run(compiled: Compiled) -> None:
    case = dataclasses.replace(ONE_LAYER, layers=2)
    answers, _ = ANSWERS[case.name]
    x, h, *weights = arrays_of(case, F32)
    for now, expected in zip(x, answers, strict=True):
        y, h = compiled("step", now, h, *weights)
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6)
