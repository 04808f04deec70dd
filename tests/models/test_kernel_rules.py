"""The rules of models/dsl/rewrites/kernel_rules.py: what each matches, and what it puts there."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Graph, Input, Tensor, make_graph
from hearthd.models.dsl.rewrites.kernel_rules import KERNEL_RULES
from hearthd.models.dsl.rewrites.rewrite import Node, Part, Rule, Variable, rewritten
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from tests.models.test_optimized import INT4_RULES, INT8_RULES, op_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from hearthd.models.dsl.rewrites.rewrite import Pattern


_OF_HEADS: Mapping[str, tuple[int, ...]] = {
    "query": (3, 5), "key": (3, 6), "value": (3, 48), "a": (3, 3),
    **dict.fromkeys(("bias", "rate", "weight"), (2,)),
}  # fmt: skip
# Of states of 128 values and three tokens.
RECURRENT_SHAPES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    # two heads of 16 values and keys of four
    "channel_delta_rule": {
        "value": (3, 32), **dict.fromkeys(("query", "key", "decay", "probe", "removed"), (3, 8)),
    },
    # two heads of 16 values, a group of four
    "gated_delta_rule": {**_OF_HEADS, "b": (3, 3)},
    "ssm_scan": {**_OF_HEADS, "b": (3, 50)},
    # 32 channels with states of four
    "selective_scan": {
        **_OF_HEADS, "a": (3, 40), "b": (3, 40), "rate": (4, 32), "bias": (32,), "weight": (32,),
    },
}  # fmt: skip


def shapes_of(rule: Rule) -> dict[str, tuple[int, ...]]:
    """The shapes of what the rule's pattern names."""
    rows, heads, width = 3, 4, 64
    shapes: dict[str, tuple[int, ...]] = {
        "h": (rows, width), "y": (rows, width), "after": (width,), "before": (width,),
        "x": (rows, heads, width), "weight": (width,),
        "cosine": (rows, width // 2), "sine": (rows, width // 2),
        "query": (rows, heads, width), "key": (16, 2 * width), "value": (16, 2 * width),
        "key_scale": (16, 2), "value_scale": (16, 2), "sinks": (heads,),
        "start": (1,), "count": (1,), "places": (rows,),
        "cache": (16, heads if rule.name == "write_row_scales" else width),
    }  # fmt: skip
    if rule.name in INT8_RULES:
        shapes["h"] = (rows, heads, width // heads)
    elif rule.name in INT4_RULES:  # keys of 6 bits, values of 4, a scale for each 32
        shapes |= {"h": (rows, 2, width), "key": (16, 96), "value": (16, 64)}
        shapes |= dict.fromkeys(("key_scale", "value_scale"), (16, 4))
        shapes["cache"] = (16, 4 if rule.name == "write_packed_scales" else 96)
    elif rule.name == "write_f16_rows":
        shapes["cache"] = (16, 2 * width)
    elif rule.name == "full_attention":  # of some rows: a kernel of many tokens
        shapes["query"] = (16, heads, width)
    elif rule.name in RECURRENT_SHAPES:
        shapes |= {"states": (9, 128), "positions": (2,), **RECURRENT_SHAPES[rule.name]}
    elif rule.name == "gated_heads":
        shapes["y"] = (rows, 2, width)
    elif rule.name == "row_before":
        shapes |= {"states": (9, 48), "positions": (1,)}
    elif rule.name in ("causal_conv", "latest_inputs"):
        shapes |= {"row": (1, 48), "h": (rows, 20), "weight": (16, 4), "bias": (16,)}
        shapes |= {"states": (9, 48), "positions": (2,)}
    return shapes | ROUTER_SHAPES.get(rule.name, {})


# Of three tokens, and 8 or 64 experts.
ROUTER_SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "router_logits": {"weight": (8, 64)},
    "expert_factors": {"weight": (64,), "chosen": (3, 2)},
    "expert_sum": {"y": (1, 3)},
}


# How many columns of a tensor of two axes a pattern has.
COLUMNS = {"query": 4, "key": 4, "value": 32, "a": 2, "h": 16}


def dtypes_of(rule: Rule) -> dict[str, DType]:
    """The dtypes of what the rule's pattern names, where they are not f32."""
    dtypes = dict.fromkeys(("start", "count", "places", "positions", "chosen"), DType.I32)
    if rule.name in (*INT8_RULES, *INT4_RULES):
        dtypes |= dict.fromkeys(("key", "value"), DType.I8)
    if rule.name in INT4_RULES:
        dtypes |= dict.fromkeys(("key_scale", "value_scale"), DType.F16)
    if rule.name in ("write_int8_rows", "write_packed_rows"):
        dtypes["cache"] = DType.I8
    if rule.name in ("write_f16_rows", "write_packed_scales"):
        dtypes["cache"] = DType.F16
    return dtypes


ATTRS: Mapping[str, Any] = {
    "eps": 1e-3,
    "keys": 12,
    "window": 5,
    "scale": 0.2,
    "cap": None,
    "alone": True,
    "ring": 8,
    "every": True,
    "limit": 0.7,
    "slope": 1.7,
    "bits": 6,
    "groups": 1,
    "heads": 2,
    "takes_turns": False,
    "count": 2,
    "scores": f.SIGMOID,
    "normalized": True,
    "sum_offset": 0.1,
    "min_sum": 0.01,
    "factor": 2.5,
}


def rule_graphs(rule: Rule) -> tuple[Graph, Graph]:
    """The rule's pattern as a graph of its own, and that graph rewritten by the rule."""
    shapes = shapes_of(rule)
    dtypes = dtypes_of(rule)
    inputs: dict[str, Tensor] = {}
    made: dict[int, Tensor] = {}

    def void(name: str) -> Tensor:
        tensor_type = TensorType(shapes[name], dtypes.get(name, DType.F32))
        return inputs.setdefault(name, Tensor(tensor_type, Input(name)))

    def build(pattern: Pattern) -> Tensor:
        match pattern:
            case Variable(name):
                return void(name)
            case Part():
                source = void(pattern.name)
                count = 2 if source.type.rank > 2 or source.shape[1] < 4 else 32
                if source.type.rank == 2 and source.shape[1] != 40:
                    count = COLUMNS.get(pattern.name, count)
                start, step = (0, 2) if pattern.is_strided else (1, 1)
                return f.every(source, 1, start, start + step * (count - 1) + 1, step)
            case Node():
                if id(pattern) not in made:
                    attributes: dict[str, Any] = {
                        key: ATTRS[name] for key, name in pattern.attrs.items()
                    }
                    if pattern.op is ops.full:
                        attributes |= {"shape": shapes["h"], "dtype": DType.F32}
                    made[id(pattern)] = pattern.op(*map(build, pattern.inputs), **attributes)
                return made[id(pattern)]

    outputs = tuple(map(build, rule.pattern))
    graph = make_graph(rule.name, tuple(inputs.values()), outputs, {}, {})
    result, counts, _ = rewritten(graph, (rule,))
    assert counts == {rule.name: 1}
    return graph, result


@pytest.mark.parametrize("rule", KERNEL_RULES, ids=lambda rule: rule.name)
def test_a_rule_computes_what_it_replaces(rule: Rule) -> None:
    graph, result = rule_graphs(rule)
    assert rule.name in op_names(result)
    rng = np.random.default_rng(0)
    values: Mapping[DType, Callable[[tuple[int, ...]], NDArray[Any]]] = {
        DType.I32: lambda shape: 6 + np.arange(prod(shape)).reshape(shape),
        DType.I8: lambda shape: rng.integers(-127, 128, shape),
        DType.F16: lambda shape: rng.normal(size=shape),
        DType.F32: lambda shape: rng.normal(size=shape),
    }
    arrays = [values[one.dtype](one.shape).astype(one.dtype.numpy) for one in graph.inputs]
    for new, old in zip(evaluate(result, arrays, {}), evaluate(graph, arrays, {}), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


def chain(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """A norm after an add; both are read from outside."""
    total = x + y
    return f.rms_norm(total, weight, eps=1e-3), total


def rewritten_chain(function: Callable[..., tuple[Tensor, ...]]) -> list[str]:
    row, vector = TensorType((2, 32), DType.F32), TensorType((32,), DType.F32)
    graph = trace("g", function, {"x": row, "y": row, "weight": vector})
    return op_names(rewritten(graph, KERNEL_RULES)[0])


def test_a_sum_that_others_read_comes_out_of_the_kernel_too() -> None:
    assert rewritten_chain(chain).count("add_norm") == 1
    assert "add" not in rewritten_chain(chain)


def test_an_inner_node_that_others_read_is_not_fused_away() -> None:
    def normed_is_read(h: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        normed = f.rms_norm(y, weight, eps=1e-3)
        return f.rms_norm(h + normed, weight, eps=1e-3), normed

    names = rewritten_chain(normed_is_read)
    assert "residual_norm" not in names
    assert names.count("rms_norm") == 1  # the other one is in add_norm
    assert names.count("add_norm") == 1


def test_norms_of_different_eps_are_not_fused() -> None:
    def different(h: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return (f.rms_norm(h + f.rms_norm(y, weight, eps=1e-3), weight, eps=1e-6),)

    assert "residual_norm" not in rewritten_chain(different)


def test_a_slice_of_other_axes_is_read_as_a_tensor_of_its_own() -> None:
    def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
        return (f.rope(ops.slice_(x, bounds=((1, 3, 1), (0, 2, 1), (0, 64, 1))), cosine, sine),)

    table = TensorType((2, 32), DType.F32)
    x = TensorType((4, 3, 64), DType.F32)
    graph = trace("g", rotated, {"x": x, "cosine": table, "sine": table})
    assert op_names(rewritten(graph, KERNEL_RULES)[0]) == ["slice", "rope"]
