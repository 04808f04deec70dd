"""Every op of the registry passes every check on all of its samples; a broken op does not."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import fused
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.ops import (
    REGISTRY,
    Lowering,
    NoGradient,
    Op,
    Sample,
    add,
    maximum,
    multiply,
    reduce_max,
    select,
    subtract,
    transpose,
)
from hearthd.models.dsl.types import DslError
from tests.models.compiled import compiled_fixture
from tests.models.dsl.ops.op_checks import broken, cases, check_all_compiled, check_op
from tests.models.graphs import gradient_graph, run, traced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.models.dsl.graph import Graph, Tensor
    from tests.models.compiled import Compiled


@pytest.mark.parametrize("op", REGISTRY.values(), ids=lambda op: op.name)
def test_op(op: Op, compiled: Compiled) -> None:
    check_op(op, compiled)


@pytest.mark.nightly
@pytest.mark.parametrize("op", REGISTRY.values(), ids=lambda op: op.name)
def test_all_samples_and_gradients_are_compiled(op: Op, all_compiled: Compiled) -> None:
    check_all_compiled(op, all_compiled)


def test_no_op_is_left_out(request: pytest.FixtureRequest) -> None:
    """There is a `test_op` for each op, whatever this run was asked to run of them."""
    assert fused.linear_quantized in REGISTRY.values()
    collected = [item.name for item in request.node.parent.collect()]
    assert [name for name in collected if name.startswith("test_op[")] == [
        f"test_op[{name}]" for name in REGISTRY
    ]


def first_graphs() -> Iterator[Graph]:
    """Every op's first sample, and the sample of an op whose lowering is wrong."""
    for op in REGISTRY.values():
        with suppress(Exception):  # of an op that cannot be traced its own test says why
            yield cases(op)[0].graph()
    with broken(subtract, **WRONG_LOWERING) as op:
        yield cases(op)[0].graph()


def all_graphs() -> Iterator[Graph]:
    """Of every op, all samples and their gradients."""
    for op in REGISTRY.values():
        with suppress(Exception):
            for case in cases(op):
                yield from case.compiled_graphs()


compiled = compiled_fixture(first_graphs)
all_compiled = compiled_fixture(all_graphs)


# --- a broken op fails, by the very check that is there for it

WRONG_LOWERING: dict[str, Any] = {"lower": lambda *_: Lowering("stablehlo.add")}


def own_order(g: Tensor, _: object, __: object, attrs: Any) -> tuple[Tensor]:
    """A transpose's gradient by the order itself in place of its inverse."""
    return (transpose(g, order=attrs["order"]),)


def swapped_select(g: Tensor, xs: tuple[Tensor, ...], *_: object) -> tuple[Tensor | None, ...]:
    return None, select(xs[0], g - g, g), select(xs[0], g, g - g)


def wider(arrays: Any, _: object) -> Any:
    return (arrays[0] + arrays[1]).astype(np.float64)


FINITE_DIFFERENCES = "gradient equals finite differences"
INFER = "infer is the type of the value"
MUTATIONS: list[tuple[str, Op, dict[str, Any], str]] = [
    ("a flipped sign", subtract, {"vjp": lambda g, *_: (g, g)}, f"0: {FINITE_DIFFERENCES}"),
    # The order of sample 0 is its own inverse: it cannot tell.
    ("a wrong permutation", transpose, {"vjp": own_order}, f"1: {FINITE_DIFFERENCES}: a vjp gave"),
    ("a factor left out", multiply, {"vjp": lambda g, xs, *_: (g * xs[1], g)}, FINITE_DIFFERENCES),
    ("two inputs swapped", select, {"vjp": swapped_select}, f"0: {FINITE_DIFFERENCES}"),
    ("a gradient that is None", add, {"vjp": lambda g, *_: (g, None)}, FINITE_DIFFERENCES),
    ("a gradient too few", add, {"vjp": lambda g, *_: (g,)}, f"{FINITE_DIFFERENCES}: zip"),
    ("a rule without words", add, {"vjp": NoGradient("")}, "no reason is given"),
    ("a value of a wrong dtype", add, {"evaluate": wider}, rf"{INFER}: .* got f64\[3, 5\]"),
    ("a wrong shape rule", transpose, {"infer": lambda types, _: types[0]}, f"0: {INFER}"),
    ("an input not looked at", add, {"infer": lambda types, _: types[0]},
     "0: inputs are counted: DID NOT RAISE"),
    ("no sample", add, {"samples": lambda _: []}, "has 0 samples"),
    ("no float sample", add, {"samples": lambda _: [Sample((np.ones(2, np.int32),) * 2)]},
     "no sample with a float input"),
    ("a large sample", add, {"samples": lambda _: [Sample((np.ones(2000),) * 2)]},
     "samples are small"),
    ("a wrong lowering", subtract, WRONG_LOWERING, "0: compiled equals numpy"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "changes", "message"),
    [mutation[1:] for mutation in MUTATIONS],
    ids=[mutation[0] for mutation in MUTATIONS],
)
def test_a_broken_op_is_seen(
    op: Op, changes: dict[str, Any], message: str, compiled: Compiled
) -> None:
    with broken(op, **changes) as wrong, pytest.raises(AssertionError, match=message) as caught:
        check_op(wrong, compiled)
    assert str(caught.value).startswith(wrong.name)


def test_the_interpreter_sees_a_wrong_type_too() -> None:
    with (
        broken(add, evaluate=wider) as op,
        pytest.raises(DslError, match=r"broken_add: expected f32\[2\], got f64\[2\]"),
    ):
        run(op, np.zeros(2, np.float32), np.zeros(2, np.float32))


# --- declaring an op


@pytest.mark.parametrize("missing", [field.name for field in fields(Op)])
def test_every_field_of_an_op_is_required(missing: str) -> None:
    before = dict(REGISTRY)
    attributes = {field.name: getattr(add, field.name) for field in fields(Op)} | {"name": "new"}
    del attributes[missing]
    with pytest.raises(TypeError, match=missing):
        Op(**attributes)
    assert before == REGISTRY


def test_a_name_cannot_be_used_twice() -> None:
    before = dict(REGISTRY)
    with pytest.raises(DslError, match="two ops called 'add'"):
        replace(add, evaluate=subtract.evaluate)
    assert before == REGISTRY
    assert REGISTRY["add"] is add


# --- where finite differences say nothing: the subgradient that each docstring states


def test_equal_largest_elements_share_the_gradient() -> None:
    x, y = np.array([[2, 2, 1]], np.float32), np.array([[2, 3, 0]], np.float32)
    largest = traced(lambda x: reduce_max(x, axes=(1,)), [x])
    (actual,) = evaluate(gradient_graph(largest), [x, np.ones(1, np.float32)], {})
    assert actual.tolist() == [[0.5, 0.5, 0]]
    first, second = evaluate(gradient_graph(traced(maximum, [x, y])), [x, y, np.ones_like(x)], {})
    assert first.tolist() == [[1, 0, 1]]
    assert second.tolist() == [[0, 1, 0]]
