"""The text of a module: weights are globals, inputs are arguments, every node is one line."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from iree.compiler import ir

from hearthd.models.decoder import entry_points
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.graph import Apply, Tensor
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.dsl.ops import REGISTRY, Lowering
from hearthd.models.dsl.ops.creation import MAX_CONSTANT_SIZE, literal
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DslError, DType, TensorType, TypeRuleError
from hearthd.models.families.gemma3 import Config, Gemma3
from hearthd.models.program import ProgramOptions

if TYPE_CHECKING:
    from hearthd.models.program import Program

TINY = Config(
    layers=3, hidden=32, ffn=40, heads=4, kv_heads=2, head_dim=8, max_context=64,
    vocab_size=61, query_scale=6**-0.5, windows=(4, 4, None),
)  # fmt: skip


@pytest.fixture(scope="module")
def program() -> Program:
    """A precision without kernels."""
    options = ProgramOptions(
        context=48, precision="f32", prefill_tokens=(4, 40), decode_batches=(1, 2)
    )
    return entry_points.program(Gemma3(TINY), options)


@pytest.fixture(scope="module")
def text(program: Program) -> str:
    return module_text("tiny", program.graphs, "model")


def test_the_compiler_parses_and_verifies_it(text: str) -> None:
    """It derives every op's result type anew and compares it with ours."""
    with ir.Context():
        module = ir.Module.parse(text)
        assert module.operation.verify()
        with pytest.raises(ir.MLIRError):
            ir.Module.parse(re.sub(r"(stablehlo.tanh.*-> tensor<)\d+x", r"\g<1>77x", text))


def test_one_global_for_each_parameter(program: Program, text: str) -> None:
    matches = re.findall(
        r'util.global private @"(.+)" = #flow.parameter.named<"model"::"(.+)"> : (.+)', text
    )
    assert {name: tensor_type for name, key, tensor_type in matches if name == key} == {
        name: tensor_type.mlir for name, tensor_type in program.parameters.items()
    }
    assert len(matches) == len(program.parameters)
    assert "mutable" not in text


def test_one_argument_for_each_input(program: Program, text: str) -> None:
    headers = re.findall(r"func.func public @(\w+)\((.*)\) -> \((.*)\) \{\n", text)
    assert [name for name, _, _ in headers] == [graph.name for graph in program.graphs]
    for graph, (_, arguments, results) in zip(program.graphs, headers, strict=True):
        matches = re.findall(
            r"%arg\d+: (tensor<\w+>)(?: {iree.abi.output = (\d+) : index})?", arguments
        )
        assert [tensor_type for tensor_type, _ in matches] == [
            tensor.type.mlir for tensor in graph.inputs
        ]
        in_place = {int(result): i for i, (_, result) in enumerate(matches) if result}
        assert in_place == graph.in_place
        assert results.split(", ") == [tensor.type.mlir for tensor in graph.outputs]


def test_every_node_is_one_line(program: Program, text: str) -> None:
    """No op is left out, none is a comment, none is a call into the unknown."""
    bodies = text.split("func.func public @")[1:]
    for graph, body in zip(program.graphs, bodies, strict=True):
        lines = re.findall(r"^    (%v\d+) = \"", body, re.MULTILINE)
        assert lines == [f"%v{i}" for i in range(len(graph.nodes))]
    assert "custom_call" not in text
    assert "//" not in text


def test_operands_are_those_of_the_graph(program: Program, text: str) -> None:
    """In number and by type, in front of what an op's lowering adds, which is named after it."""
    bodies = text.split("func.func public @")[1:]
    for graph, body in zip(program.graphs, bodies, strict=True):
        pattern = r'^    (%v\d+) = "[\w.]+"\((.*?)\).* : \((.*?)\) -> '
        lines = re.findall(pattern, body, re.MULTILINE)
        for node, (result, operands, types) in zip(graph.nodes, lines, strict=True):
            assert isinstance(node.origin, Apply)
            operand_count = len(node.inputs)
            names = [name for name in operands.split(", ") if name]
            assert all(re.fullmatch(rf"{result}[a-z]\d*", name) for name in names[operand_count:])
            inputs = rf"%(arg|w|v)\d+|{result}b\d+"  # or behind a barrier
            assert all(re.fullmatch(inputs, name) for name in names[:operand_count])
            expected = [tensor.type.mlir for tensor in node.inputs]
            assert [tensor_type for tensor_type in types.split(", ") if tensor_type][
                :operand_count
            ] == expected


def coverage(program: Program) -> Counter[tuple[str, str]]:
    """How many nodes each op has in the model, and by which rule they are written."""
    counted: Counter[tuple[str, str]] = Counter()
    for graph in program.graphs:
        for node in graph.nodes:
            assert isinstance(node.origin, Apply)
            op = node.origin.op
            types = tuple(source.type for source in node.inputs)
            lowering = op.lower(types, node.type, node.origin.attrs)
            assert isinstance(lowering, Lowering)
            counted[op.name, lowering.operation] += 1
    return counted


def test_coverage_of_the_whole_model(program: Program, text: str) -> None:
    """Every op is a registered one, and the text has as many of each operation: 0 unsupported."""
    counted = coverage(program)
    assert {name for name, _ in counted} <= REGISTRY.keys()
    by_rule: Counter[str] = Counter()
    for (_, operation), nodes in counted.items():
        by_rule[operation] += nodes
    assert by_rule == Counter(re.findall(r'^    %v\d+ = "([\w.]+)"', text, re.MULTILINE))
    assert by_rule.total() == sum(len(graph.nodes) for graph in program.graphs)
    used = {name for name, _ in counted}
    assert used >= {"gather", "scatter", "project", "dot_general", "select", "sqrt"}


def test_without_one_rule_there_is_no_module(program: Program) -> None:
    """Whichever it is: a node is never left out or written as a comment."""

    def deleted(*_: object) -> Lowering:
        raise DslError("this rule is deleted")

    for name in {name for name, _ in coverage(program)}:
        op, rule = REGISTRY[name], REGISTRY[name].lower
        object.__setattr__(op, "lower", deleted)  # ops are frozen, and stay so for anyone else
        try:
            with pytest.raises(DslError, match="this rule is deleted"):
                module_text("tiny", program.graphs, "model")
        finally:
            object.__setattr__(op, "lower", rule)


def test_no_large_constant(text: str) -> None:
    """A weight in the text would be hex digits by the thousand."""
    digits = max(len(digits) for digits in re.findall(r"0x([0-9A-F]+)", text))
    assert digits <= MAX_CONSTANT_SIZE * 8
    assert max(map(len, text.splitlines())) < 10_000


def test_literals_lose_nothing() -> None:
    """As bits: -inf has no other form in MLIR, and decimal digits would round."""
    assert literal(-np.inf, DType.F32) == "0xFF800000"
    assert literal(0.1, DType.F32) == "0x3DCCCCCD"
    assert literal(1.0, DType.BF16) == "0x3F80"
    assert literal(-7, DType.I32) == "-7"
    assert [literal(value, DType.BOOL) for value in (0, 1)] == ["false", "true"]


def test_the_model_has_masks_of_minus_infinity_and_no_nan(text: str) -> None:
    filled = re.findall(r"dense<0x([0-9A-F]{8})> : tensor<[\dx]*f32>", text)
    assert "FF800000" in filled
    values = np.array([int(bits, 16) for bits in filled], np.uint32).view(np.float32)
    assert not np.isnan(values).any()


def test_one_name_cannot_be_two_parameters() -> None:
    graphs = []
    for width in (2, 3):
        norm = nn.RMSNorm(width, 1e-6)
        graphs.append(
            trace(f"g{width}", lambda x, norm=norm: (norm(x),),
                  {"x": TensorType((width,), DType.F32)}, parameters=norm.parameters())
        )  # fmt: skip
    with pytest.raises(DslError, match=r"weight is f32\[2\] and, in g3, f32\[3\]"):
        module_text("m", graphs, "model")


def test_functions_share_a_parameter() -> None:
    norm = nn.RMSNorm(2, 1e-6)
    inputs = {"x": TensorType((2,), DType.F32)}
    graphs = [
        trace(name, lambda x: (norm(x),), inputs, parameters=norm.parameters()) for name in "ab"
    ]
    text = module_text("m", graphs, "model")
    assert text.count("util.global private") == 1
    assert text.count("util.global.load") == 2


def test_an_op_s_constants_follow_its_inputs() -> None:
    def total(x: Tensor) -> tuple[Tensor]:
        return (ops.reduce_max(x, axes=(0,)),)

    graph = trace("g", total, {"x": TensorType((5,), DType.F32)})
    text = module_text("m", [graph], "model")
    assert "%v0c0 = stablehlo.constant dense<0xFF800000> : tensor<f32>" in text
    assert '%v0 = "stablehlo.reduce"(%arg0, %v0c0)' in text


@pytest.mark.parametrize(("combine", "unique"), [("add", "false"), ("replace", "true")])
def test_rows_that_are_added_may_have_one_place(combine: str, unique: str) -> None:
    """With `unique_indices` the compiler may add them at the same time, and lose some."""
    kinds = {
        "x": TensorType((3, 2), DType.F32),
        "indices": TensorType((5,), DType.I32),
        "rows": TensorType((5, 2), DType.F32),
    }
    graph = trace("f", lambda *xs: (ops.scatter(*xs, combine=combine),), kinds)
    assert f"unique_indices = {unique}" in module_text("module", [graph], "model")


def test_a_dtype_that_is_not_compiled_raises() -> None:
    """The compiler would take f64 for f32, and the caller's bytes with it."""
    of = {"x": TensorType((2,), DType.F64)}
    with pytest.raises(DslError, match=r"<input x: f64\[2\]>: f64 is not compiled"):
        module_text("m", [trace("g", lambda x: (x,), of)], "model")
    inside = trace(
        "g",
        lambda x: (ops.convert(ops.tanh(ops.convert(x, dtype=DType.F64)), dtype=DType.F32),),
        {"x": TensorType((2,), DType.F32)},
    )
    with pytest.raises(DslError, match=r"<convert: f64\[2\]>: f64 is not compiled"):
        module_text("m", [inside], "model")


def test_a_missing_operand_raises() -> None:
    """A node, a weight or an argument left out: it is named, and no other takes its place."""
    norm = nn.RMSNorm(2, 1e-6)
    inputs = {name: TensorType((2,), DType.F32) for name in "xy"}
    graph = trace("g", lambda x, y: (norm(x) + y,), inputs, parameters=norm.parameters())
    graph = inlined(graph)
    module_text("m", [graph], "model")
    for i, node in enumerate(graph.nodes):
        without = replace(graph, nodes=(*graph.nodes[:i], *graph.nodes[i + 1 :]))
        with pytest.raises(DslError, match=rf"g: {re.escape(repr(node))} is missing"):
            module_text("m", [without], "model")
    with pytest.raises(DslError, match=r"broadcast in g: <parameter: f32\[2\]> is missing"):
        module_text("m", [replace(graph, parameters={})], "model")
    with pytest.raises(DslError, match=r"add in g: <input y: f32\[2\]> is missing"):
        module_text("m", [replace(graph, inputs=graph.inputs[:1])], "model")
    with pytest.raises(TypeRuleError, match="add: expected a tensor as input 1, got None"):
        trace("g", lambda x: (ops.add(x, None),), {"x": inputs["x"]})  # type: ignore[arg-type]
