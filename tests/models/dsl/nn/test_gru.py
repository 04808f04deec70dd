"""The GRU in all its forms: the equations, PyTorch's numbers, what is in the graphs, gradients."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.functions import recurrent
from hearthd.models.dsl.graph import Apply, Graph
from hearthd.models.dsl.ops.record import Loop
from hearthd.models.dsl.types import DType, TensorType, TypeRuleError
from tests.by_day import first_by_day
from tests.models.dsl.nn.gru_cases import (
    BATCH,
    CASE,
    FORMS,
    HIDDEN,
    ONE_LAYER,
    Case,
    arrays_of,
    each_case,
    each_form,
    graph_of,
    joined,
    step_graph,
    torch_answers,
)
from tests.models.graphs import check_gradient, gradient_graph, run, traced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[Any]

F32, F64 = DType.F32, DType.F64
ANSWERS = torch_answers()


# --- the equations


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def test_the_cell_is_the_formula() -> None:
    rng = np.random.default_rng(0)
    w_r, w_z, w_n = (rng.normal(size=(3, 4)) for _ in range(3))
    u_r, u_z, u_n = (rng.normal(size=(3, 3)) for _ in range(3))
    b_r, b_z, b_n, c_r, c_z, c_n = (rng.normal(size=3) for _ in range(6))
    x, h = rng.normal(size=(2, 4)), rng.normal(size=(2, 3))
    r = sigmoid(x @ w_r.T + b_r + h @ u_r.T + c_r)
    z = sigmoid(x @ w_z.T + b_z + h @ u_z.T + c_z)
    n = np.tanh(x @ w_n.T + b_n + r * (h @ u_n.T + c_n))
    weights = [np.concatenate(gates) for gates in (
        (w_r, w_z, w_n), (u_r, u_z, u_n), (b_r, b_z, b_n), (c_r, c_z, c_n)
    )]  # fmt: skip
    np.testing.assert_allclose(run(f.gru_cell, x, h, *weights), (1 - z) * n + z * h, atol=1e-14)


THREE = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3)
ALGEBRA = traced(
    f.gru_cell,
    [np.zeros(shape, np.float32) for shape in ((1, 3), (1, 3), (9, 3), (9, 3), (9,), (9,))],
)
SIGMOID = traced(f.sigmoid, [np.zeros((1, 3), np.float32)])


@given(THREE, THREE, THREE)
def test_the_other_algebra_is_two_roundings_away(
    state: list[float], update: list[float], new: list[float]
) -> None:
    """n + z (h - n) equals (1 - z) n + z h within 2 ulp of the larger of n and h.

    Smaller values than the least normal number count as 0: each of two terms may be one.
    """
    h, zeros = np.array([state], np.float32), np.zeros((9, 3), np.float32)
    gates = 9 * np.array([update], np.float32), 4 * np.array([new], np.float32)
    bias = np.concatenate([np.zeros(3, np.float32), *(gate[0] for gate in gates)])
    arrays = [h, h, zeros, zeros, bias, np.zeros(9, np.float32)]
    (actual,) = evaluate(ALGEBRA, arrays, {})
    (z,) = evaluate(SIGMOID, [gates[0]], {})
    n = np.tanh(gates[1])
    ulp = np.spacing(np.maximum(np.abs(n), np.abs(h)))
    assert np.all(np.abs(actual - (n + z * (h - n))) <= 2 * (ulp + np.finfo(np.float32).tiny))


# --- PyTorch's numbers


@each_case
@each_form
def test_numpy_equals_torch(case: Case, form: str) -> None:
    for dtype, tolerance in ((F64, 1e-12), (F32, 1e-6)):
        actual = evaluate(graph_of(case, form, dtype=dtype), arrays_of(case, dtype), {})
        for array, expected in zip(actual, ANSWERS[case.name], strict=True):
            assert array.shape == expected.shape
            np.testing.assert_allclose(array, expected, rtol=0, atol=tolerance)


def test_a_wrong_order_of_states_is_seen() -> None:
    """`test_numpy_equals_torch` fails if the states come in another order."""
    _, expected = ANSWERS[CASE.name]
    for order in ((1, 0, 2, 3), (0, 2, 1, 3)):
        assert np.abs(expected[[*order]] - expected).max() > 0.01


# --- forms: what is in the graphs


def matmuls(graph: Graph) -> int:
    """How many products of matrices the graph computes, those in loops as often as they run."""
    count = 0
    for node, loop in nodes_and_loops(graph):
        if loop is not None:
            count += loop.steps * matmuls(loop.body)
        elif node.origin.op.name in ("dot_general", "project"):
            count += 1
    return count


def nodes_and_loops(graph: Graph) -> Iterator[tuple[Any, Loop | None]]:
    for node in graph.nodes:
        assert isinstance(node.origin, Apply)
        types = tuple(source.type for source in node.inputs)
        lowering = node.origin.op.lower(types, node.type, node.origin.attrs)
        yield node, lowering if isinstance(lowering, Loop) else None


def loops(graph: Graph) -> int:
    return sum(loop is not None for _, loop in nodes_and_loops(graph))


@pytest.mark.parametrize("case", [CASE, ONE_LAYER], ids=["two_layers", "one_layer"])
def test_each_form_is_what_it_says(case: Case) -> None:
    readers = case.layers * case.directions
    counted = {form: matmuls(graph_of(case, form)) for form in FORMS}
    decomposed, hoisted = 2 * case.steps * readers, (1 + case.steps) * readers
    assert counted == {
        "unrolled": decomposed, "loop": decomposed, "fused": hoisted, "blocks": hoisted
    }  # fmt: skip
    looped = {form: loops(graph_of(case, form)) for form in counted}
    assert looped == {"unrolled": 0, "loop": readers, "fused": 0, "blocks": readers}


@pytest.mark.parametrize(("form", "grows"), [("unrolled", True), ("loop", False), ("fused", False)])
def test_the_size_of_a_long_sequence(form: str, grows: bool) -> None:
    """A loop's graph has one size; the fused form's is bounded by its blocks."""

    def size(steps: int) -> int:
        graph = dataclasses.replace(ONE_LAYER, steps=steps).graph(F32, form)
        inside = [loop.body for _, loop in nodes_and_loops(graph) if loop is not None]
        return sum(len(part.nodes) for part in (graph, *inside))

    # Both leave the same number of steps over.
    assert (size(160 + 3) < size(320 + 3)) == grows


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", first_by_day([128, 129, 160, 200], 2))
def test_the_fused_form_of_a_long_sequence(steps: int, reverse: bool) -> None:
    case = dataclasses.replace(ONE_LAYER, steps=steps, bidirectional=reverse)
    arrays = arrays_of(case)
    for fused, expected in zip(
        evaluate(graph_of(case, "fused"), arrays, {}),
        evaluate(graph_of(case, "loop"), arrays, {}),
        strict=True,
    ):
        np.testing.assert_allclose(fused, expected, rtol=0, atol=1e-14)


def test_the_fused_form_falls_back_where_it_cannot_help() -> None:
    state = TensorType((BATCH, HIDDEN), F64)
    assert f.choose_gru_form("fused", 2, state) == f.GruForm("fused", None)
    once = f.choose_gru_form("fused", 1, state)
    assert (once.name, "one step" in str(once.fallback)) == ("unrolled", True)
    case = dataclasses.replace(CASE, steps=1)
    assert matmuls(graph_of(case, "fused")) == 2 * case.layers * case.directions


def test_gates_that_take_too_much_memory_are_not_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    gates = 3 * CASE.steps * BATCH * HIDDEN * 8
    monkeypatch.setattr(recurrent, "MAX_GATE_BYTES", gates)
    assert loops(graph_of(CASE, "fused")) == 0
    monkeypatch.setattr(recurrent, "MAX_GATE_BYTES", gates - 1)
    chosen = f.choose_gru_form("fused", CASE.steps, TensorType((BATCH, HIDDEN), F64))
    assert chosen == f.GruForm(
        "loop", f"fused: {gates} bytes of gates, at most {gates - 1} are kept"
    )
    fallen = graph_of(CASE, "fused")
    assert loops(fallen) == CASE.layers * CASE.directions
    arrays = arrays_of(CASE)
    for actual, expected in zip(
        evaluate(fallen, arrays, {}), evaluate(graph_of(CASE, "loop"), arrays, {}), strict=True
    ):
        assert np.array_equal(actual, expected)


def test_a_form_that_there_is_not() -> None:
    with pytest.raises(TypeRuleError, match="form: expected unrolled, loop, fused, got 'quick'"):
        CASE.graph(F32, "quick")


def test_a_loop_has_the_bits_of_what_it_repeats() -> None:
    """The same products of the same shapes, one after the other."""
    arrays = arrays_of(CASE, F32)
    for form, same_as in (("loop", "unrolled"), ("blocks", "fused")):
        for actual, expected in zip(
            evaluate(graph_of(CASE, form, dtype=F32), arrays, {}),
            evaluate(graph_of(CASE, same_as, dtype=F32), arrays, {}),
            strict=True,
        ):
            assert np.array_equal(actual, expected)


# --- dtypes


@each_form
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, F32, F64], ids=lambda dtype: dtype.label)
def test_the_dtype_reaches_every_node(dtype: DType, form: str) -> None:
    """Narrow floats are summed in f32, and nothing else is."""
    graph = graph_of(CASE, form, dtype=dtype)
    assert {tensor.dtype for tensor in graph.outputs} == {dtype}
    bodies = [loop.body for _, loop in nodes_and_loops(graph) if loop is not None]
    for node in (node for part in (graph, *bodies) for node in part.nodes):
        assert isinstance(node.origin, Apply)
        summed = node.origin.op.name in ("dot_general", "project")
        wide = F32 if summed and dtype not in (F32, F64) else dtype
        assert node.dtype is wide, node
    y, _ = evaluate(graph, arrays_of(CASE, dtype), {})
    rounding = {DType.F16: 1e-3, DType.BF16: 8e-3, F32: 1e-6, F64: 1e-12}[dtype]
    np.testing.assert_allclose(
        y.astype(np.float64), ANSWERS[CASE.name][0], rtol=0, atol=4 * rounding
    )


# --- gradients


@pytest.mark.parametrize("bidirectional", [False, True])
def test_gradients_of_everything(bidirectional: bool) -> None:
    """x, h0 and all weights, by finite differences; the other forms agree (see below)."""
    case = dataclasses.replace(ONE_LAYER, steps=3, bidirectional=bidirectional)
    graph = joined(graph_of(case, "unrolled"))
    compared = check_gradient(graph, arrays_of(case), np.random.default_rng(3))
    assert compared == 2 + 4 * case.directions


def test_forms_agree_about_gradients_through_layers() -> None:
    rng, arrays = np.random.default_rng(4), arrays_of(CASE)
    graphs = {form: joined(graph_of(CASE, form)) for form in FORMS}
    upstream = rng.normal(size=graphs["loop"].outputs[0].shape)
    expected = evaluate(gradient_graph(graphs["unrolled"]), [*arrays, upstream], {})
    for form, graph in graphs.items():
        actual = evaluate(gradient_graph(graph), [*arrays, upstream], {})
        for gradient, other in zip(actual, expected, strict=True):
            np.testing.assert_allclose(gradient, other, rtol=0, atol=1e-12, err_msg=form)


# --- properties


def test_steps_one_at_a_time_are_the_run() -> None:
    """With the same bits: they are the same products."""
    case = dataclasses.replace(ONE_LAYER, layers=2)
    x, h, *weights = arrays_of(case, F32)
    y, h_n = evaluate(graph_of(case, "unrolled", dtype=F32), [x, h, *weights], {})
    graph = step_graph(case, F32)
    for now, expected in zip(x, y, strict=True):
        actual, h = evaluate(graph, [now, h, *weights], {})
        assert np.array_equal(actual, expected)
    assert np.array_equal(h, h_n)


@given(st.integers(0, 4), st.booleans(), st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_a_state_sees_what_was_read_and_nothing_else(
    changed: int, reverse: bool, place: int
) -> None:
    case = dataclasses.replace(ONE_LAYER, bidirectional=reverse)
    graph = graph_of(case, ("unrolled", "loop", "fused", "blocks")[place])
    x, *others = arrays_of(case)
    before, _ = evaluate(graph, [x, *others], {})
    x = x.copy()
    x[changed, 0, 0] += 1
    after, _ = evaluate(graph, [x, *others], {})
    moved = np.any(before != after, axis=-1)  # (S, B)
    assert not moved[:, 1].any(), "sequences of a batch know nothing of each other"
    forward = np.any(before[:, 0, :HIDDEN] != after[:, 0, :HIDDEN], axis=-1)
    assert forward.tolist() == [step >= changed for step in range(5)]
    if reverse:
        backward = np.any(before[:, 0, HIDDEN:] != after[:, 0, HIDDEN:], axis=-1)
        assert backward.tolist() == [step <= changed for step in range(5)]


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 100))
@settings(max_examples=25, deadline=None)
def test_a_state_stays_between_one_and_what_it_began_with(seed: int, scale: float) -> None:
    """h' lies between n, which a tanh bounds, and h."""
    rng = np.random.default_rng(seed)
    x, h, *weights = arrays_of(ONE_LAYER)
    x, h = scale * rng.normal(size=x.shape), scale * rng.normal(size=h.shape)
    y, _ = evaluate(graph_of(ONE_LAYER, "fused"), [x, h, *weights], {})
    assert np.all(np.abs(y) <= np.maximum(1, np.abs(h)) * (1 + 1e-15))
