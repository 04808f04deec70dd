"""Functions that a trace keeps as one node: value, shape rule and gradient are the function's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import composite as composites
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import fused, ops
from hearthd.models.dsl.composite import Fused, composite, inlined
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Apply, Graph, deduplicated
from hearthd.models.dsl.ops.record import REGISTRY
from hearthd.models.dsl.types import DslError, TypeRuleError
from tests.models.graphs import check_gradient, run, traced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor

    Array = NDArray[Any]

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(3, 4)), RNG.normal(size=4)


@composite()
def halves_sum(x: Tensor, y: Tensor | None = None, *, factor: float = 0.5) -> Tensor:
    """factor * (x + y)."""
    return (x if y is None else x + y) * factor


def names(graph: Graph) -> list[str]:
    return [node.origin.op.name for node in graph.nodes if isinstance(node.origin, Apply)]


def test_a_composite_is_one_node_until_it_is_inlined() -> None:
    graph = traced(lambda x: halves_sum(halves_sum(x, x), x, factor=2.0), [X])
    assert names(graph) == ["halves_sum", "halves_sum"]
    plain = inlined(graph)
    assert sorted(names(plain)) == ["add", "add", "full", "full", "multiply", "multiply"]
    for one in (graph, plain):
        np.testing.assert_allclose(evaluate(one, [X], {})[0], 4 * X)


def test_composites_in_composites_are_inlined() -> None:
    @composite()
    def outer(x: Tensor) -> Tensor:
        """Two of them."""
        return halves_sum(x) + halves_sum(x)

    assert set(names(inlined(traced(outer, [X])))) == {"add", "full", "multiply"}


def test_a_composite_has_the_gradient_of_its_function() -> None:
    graph = traced(lambda x, w: f.rms_norm(f.rms_norm(x, w, eps=1e-3) * x, w, eps=1e-3), [X, W])
    assert check_gradient(graph, [X, W], RNG) == 2


def test_a_composite_s_type_rule_is_its_function_s() -> None:
    with pytest.raises(TypeRuleError, match=r"rms_norm\(f64\[3, 4\], f64\[3\], eps=.*broadcast"):
        run(lambda x: f.rms_norm(x, f.at(ops.transpose(x, order=(1, 0)), 0), eps=1e-3), X)
    with pytest.raises(TypeRuleError, match="halves_sum: there is no attribute 'scale'"):
        run(lambda x: halves_sum.op(x, scale=1.0), X)
    with pytest.raises(TypeRuleError, match=r"rope.*expected 3 inputs, got 1"):
        run(lambda x: f.rope.op(x), X)


def test_a_composite_is_not_lowered() -> None:
    with pytest.raises(DslError, match="halves_sum: a composite is not lowered"):
        halves_sum.op.lower((), None, {})  # type: ignore[arg-type]


def test_blocks_are_evaluated_apart_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 blocks, 2 at a time; a reference that mixes blocks would differ."""
    sample = fused.linear_quantized.samples(RNG)[0]
    x, weight, scale = (
        np.concatenate([a] * n) for a, n in zip(sample.inputs, (1, 5, 5), strict=True)
    )
    whole = fused.linear_quantized.evaluate((x, weight, scale), sample.attrs)
    monkeypatch.setattr(composites, "_BLOCK_BYTES", 2 * (weight[:1].nbytes + scale[:1].nbytes))
    np.testing.assert_allclose(
        fused.linear_quantized.evaluate((x, weight, scale), sample.attrs), whole, atol=1e-5
    )


def has_values_by_numpy(graph: Graph) -> bool:
    applied = [node.origin for node in graph.nodes if isinstance(node.origin, Apply)]
    return any(
        isinstance(origin.op, Fused)
        and (
            origin.op.in_numpy is not None
            or has_values_by_numpy(
                origin.op.body(tuple(x.type for x in origin.inputs), origin.attrs)
            )
        )
        for origin in applied
    )


@pytest.mark.parametrize("name", sorted(fused.__dict__.keys() & ops.REGISTRY.keys()))
def test_a_fused_op_computes_its_reference(name: str) -> None:
    """On all of its samples, the function itself and the op give the same bits.

    An op with a value by NumPy, or whose function has such an op, adds in another order.
    """
    op = ops.REGISTRY[name]
    assert isinstance(op, Fused)
    for sample in op.samples(np.random.default_rng(0)):
        graph = traced(lambda *xs, a=sample.attrs: op.reference(*xs, **a), sample.inputs)
        (value,) = evaluate(inlined(graph), sample.inputs, {})
        is_exact = op.in_numpy is None and not has_values_by_numpy(graph)
        tolerance = 0 if is_exact else 1e-5
        actual = op.evaluate(sample.inputs, sample.attrs)
        np.testing.assert_allclose(actual, value, rtol=0, atol=tolerance, equal_nan=True)


def test_equal_nodes_become_one() -> None:
    def twice(x: Tensor) -> Tensor:
        return (x * 2.0 + 1.0) * (x * 2.0 + 1.0) + (x * 3.0)

    graph = traced(twice, [X])
    smaller = deduplicated(graph)
    assert sorted(names(smaller)) == [
        "add", "add", "full", "full", "full", "multiply", "multiply", "multiply"
    ]  # fmt: skip
    assert np.array_equal(evaluate(smaller, [X], {})[0], evaluate(graph, [X], {})[0])


def test_a_fused_op_has_the_name_of_its_function() -> None:
    """Fused ops with gates are not tested: the function of their activation has no name."""
    functions = {
        name: op.reference.__name__.removeprefix("_")
        for name, op in REGISTRY.items()
        if isinstance(op, Fused) and not name.startswith("gated_")
    }
    assert {name for name, function in functions.items() if name != function} == set()
    assert {"cached_attention", "rope", "routed_linear"} <= functions.keys()
