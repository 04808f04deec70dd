"""Write graphs as one StableHLO module, in MLIR's generic form.

Each graph becomes a public function. All types come from the ops' shape rules; an op's lowering
gives its name and attributes only. Weights are globals that the functions share; the runtime
looks each up by scope and name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.dsl.graph import Apply, Graph, Tensor
from models.dsl.ops.creation import literal
from models.dsl.types import DslError, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def module_text(name: str, graphs: Sequence[Graph], parameter_scope: str) -> str:
    """The module `name` with one function for each graph.

    Raises DslError when two graphs give one parameter different types.
    """
    parameters: dict[str, TensorType] = {}
    for graph in graphs:
        for key, tensor in graph.parameters.items():
            if parameters.setdefault(key, tensor.type) != tensor.type:
                raise DslError(f"{key} is {parameters[key]} and, in {graph.name}, {tensor.type}")
    lines = [f"module @{name} {{"]
    lines += [
        f'  util.global private @"{key}" = '
        f'#flow.parameter.named<"{parameter_scope}"::"{key}"> : {kind.mlir}'
        for key, kind in sorted(parameters.items())
    ]
    for graph in graphs:
        lines += _function(graph)
    return "\n".join([*lines, "}", ""])


def _function(graph: Graph) -> Iterator[str]:
    ids = {id(tensor): f"%arg{i}" for i, tensor in enumerate(graph.inputs)}
    storage = {argument: result for result, argument in graph.in_place.items()}
    arguments = []
    for i, tensor in enumerate(graph.inputs):
        in_place = f" {{iree.abi.output = {storage[i]} : index}}" if i in storage else ""
        arguments.append(f"{ids[id(tensor)]}: {tensor.type.mlir}{in_place}")
    results = ", ".join(tensor.type.mlir for tensor in graph.outputs)
    yield f"  func.func public @{graph.name}({', '.join(arguments)}) -> ({results}) {{"
    for i, (key, tensor) in enumerate(graph.parameters.items()):
        ids[id(tensor)] = f"%w{i}"
        yield f'    %w{i} = util.global.load @"{key}" : {tensor.type.mlir}'
    for i, node in enumerate(graph.nodes):
        ids[id(node)] = f"%v{i}"
        yield from _node(node, ids)
    returned = ", ".join(ids[id(tensor)] for tensor in graph.outputs)
    yield f"    return {returned} : {results}"
    yield "  }"


def _node(node: Tensor, ids: dict[int, str]) -> Iterator[str]:
    assert isinstance(node.origin, Apply)
    lowering = node.origin.op.lower(
        tuple(source.type for source in node.inputs), node.type, node.origin.attrs
    )
    own = ids[id(node)]
    operands = [(ids[id(source)], source.type) for source in node.inputs]
    scalar = TensorType((), node.type.dtype)
    for i, value in enumerate(lowering.scalars):
        operands.append((f"{own}c{i}", scalar))
        number = literal(value, scalar.dtype)
        yield f"    {own}c{i} = stablehlo.constant dense<{number}> : {scalar.mlir}"
    if lowering.into is not None:
        # Filled and not a constant: the compiler would evaluate a constant of any size.
        operands.append((f"{own}f", node.type))
        kind, number = node.type.dtype.mlir, literal(lowering.into, node.type.dtype)
        yield f"    {own}e = tensor.empty() : {node.type.mlir}"
        yield f"    {own}z = arith.constant {number} : {kind}"
        yield (
            f"    {own}f = linalg.fill ins({own}z : {kind}) outs({own}e : {node.type.mlir})"
            f" -> {node.type.mlir}"
        )
    names = ", ".join(name for name, _ in operands)
    types = ", ".join(kind.mlir for _, kind in operands)
    attributes = f" <{{{lowering.attributes}}}>" if lowering.attributes else ""
    region = f" ({{ {lowering.region} }})" if lowering.region else ""
    hints = f" {{{lowering.hints}}}" if lowering.hints else ""
    yield (
        f'    {own} = "{lowering.operation}"({names}){attributes}{region}{hints}'
        f" : ({types}) -> {node.type.mlir}"
    )
