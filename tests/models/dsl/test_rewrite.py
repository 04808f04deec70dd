"""What a rule does not replace, and why: a kernel that does not take it, or a fault in the rule."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hearthd.baker.pipeline.shared_stages import unfused_texts
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.graph import Parameter, Tensor
from hearthd.models.dsl.rewrites.kernel_rules import KERNEL_RULES, RECURRENT_RULES
from hearthd.models.dsl.rewrites.rewrite import Node, Rule, node, rewritten, variables
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType, TypeRuleError
from hearthd.models.optimized import Unfused, optimized
from tests.models.test_optimized import OPTIONS, program_of
from tests.models.tiny_configs import LAYERS

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_shape_that_a_kernel_does_not_take_is_reported_with_the_reason() -> None:
    """The attention of Gemma 2 has a soft cap, which the kernel does not have."""
    program = program_of("gemma2", OPTIONS)
    assert "cached_attention" not in program.fusions["decode_1"]
    unfused = program.unfused["decode_1"]["cached_attention"]
    assert (unfused.count, unfused.layers) == (LAYERS, tuple(range(LAYERS)))
    assert unfused.reason.endswith("expected no soft cap of scores")
    (text,) = unfused_texts(program.unfused)
    where = f"layers 0-{LAYERS - 1}, one of {len(program.entry_points)} such entry points"
    assert text.startswith("not fused: cached_attention x")
    assert text.endswith(f", {where}: expected no soft cap of scores")


def test_only_the_layers_that_a_kernel_does_not_take_are_named() -> None:
    """Of LFM2's layers, the first one has a convolution, whose state is not keys in f16."""
    (unfused,) = program_of("lfm2", OPTIONS).unfused["decode_1"].values()
    assert unfused.layers == (0,)


@pytest.mark.parametrize(
    ("layers", "text"),
    [((), ""), ((3,), ", layers 3"), ((0, 1, 2, 5, 7, 8), ", layers 0-2, 5, 7-8")],
)
def test_layers_are_listed_in_ranges(layers: tuple[int, ...], text: str) -> None:
    unfused = Unfused(reason="rope(): expected less", count=9, layers=layers)
    assert list(unfused_texts({"decode_1": {"rope": unfused}})) == [
        f"not fused: rope x9 in decode_1{text}, one of 1 such entry points: expected less"
    ]


@pytest.mark.parametrize("family", ["gemma3", "qwen3moe"])
def test_nothing_is_reported_where_kernels_take_everything(family: str) -> None:
    options = replace(OPTIONS, prefill_tokens=(8, 64), context=128)
    assert list(unfused_texts(program_of(family, options).unfused)) == []


def composites(pattern: object) -> Iterator[Node]:
    if isinstance(pattern, Node):
        if isinstance(pattern.op, Fused):
            yield pattern
        for source in pattern.inputs:
            yield from composites(source)


@pytest.mark.parametrize("rule", [*KERNEL_RULES, *RECURRENT_RULES], ids=lambda rule: rule.name)
def test_a_rule_hands_every_attribute_of_a_function_to_its_kernel(rule: Rule) -> None:
    """An attribute that the pattern does not name would silently have its default."""
    for pattern in rule.pattern:
        for found in composites(pattern):
            assert isinstance(found.op, Fused)
            parameters = inspect.signature(found.op.reference).parameters.values()
            attributes = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
            assert attributes == found.attrs.keys(), found.op.name


def test_a_fault_in_a_rule_is_an_error() -> None:
    """It would otherwise leave the slow function in the graph."""
    (x,) = variables("x")
    rule = Rule(
        name="faulty",
        pattern=(node(ops.negate, x),),
        replacement=lambda x: (ops.reshape(x, shape=(7,)),),
    )
    graph = trace("negated", lambda x: (ops.negate(x),), {"x": TensorType((4,), DType.F32)})
    with pytest.raises(TypeRuleError, match="reshape"):
        rewritten(graph, (rule,))


def test_a_matrix_of_experts_that_shares_blocks_is_refused() -> None:
    """Two experts of 24 rows have three blocks of sixteen: no kernel reads them."""
    weight = Tensor(TensorType((48, 32), DType.F32), Parameter())
    graph = trace(
        "experts",
        lambda x, chosen: (f.routed_linear(x, chosen, weight, experts=2),),
        {"x": TensorType((3, 32), DType.F32), "chosen": TensorType((3,), DType.I32)},
        parameters={"weight": weight},
    )
    with pytest.raises(TypeRuleError, match="matrices of 2 experts with a multiple of 16 rows"):
        optimized([graph], {"weight": weight}, storage=lambda _: STORAGES["int8-g32"], kernels=True)
