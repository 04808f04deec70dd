"""Compute a graph in NumPy: the reference that every compiled program is compared with."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from models.dsl.graph import Apply, Tensor
from models.dsl.types import DslError, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from models.dsl.graph import Graph
    from models.dsl.ops.record import Array


def evaluate(graph: Graph, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> list[Array]:
    """The graph's outputs for these inputs.

    Parameters are looked up by name when first needed, so a mapping that reads them from disk
    keeps memory low; an intermediate value is dropped after its last use. Raises DslError when an
    array is not of its tensor's type, whoever made it: the caller, the weights or an op.
    """
    if len(inputs) != len(graph.inputs):
        raise DslError(f"{graph.name}: expected {len(graph.inputs)} inputs, got {len(inputs)}")
    values: dict[int, Array] = {}
    for tensor, array in zip(graph.inputs, inputs, strict=True):
        values[id(tensor)] = _checked(array, tensor, graph.name)
    names = {id(tensor): name for name, tensor in graph.parameters.items()}
    uses = Counter(id(source) for node in graph.nodes for source in node.inputs)
    uses.update(id(output) for output in graph.outputs)

    def value(tensor: Tensor) -> Array:
        if id(tensor) in names:
            name = names[id(tensor)]
            return _checked(parameters[name], tensor, f"{graph.name}: {name}")
        array = values[id(tensor)]
        uses[id(tensor)] -= 1
        if not uses[id(tensor)]:
            del values[id(tensor)]
        return array

    for node in graph.nodes:
        assert isinstance(node.origin, Apply)
        op, attrs = node.origin.op, node.origin.attrs
        arrays = tuple(value(source) for source in node.inputs)
        values[id(node)] = _checked(op.evaluate(arrays, attrs), node, f"{graph.name}: {op.name}")
    return [value(output) for output in graph.outputs]


def _checked(array: Array, tensor: Tensor, where: str) -> Array:
    found = TensorType(array.shape, DType.of(array.dtype))
    if found != tensor.type:
        raise DslError(f"{where}: expected {tensor.type}, got {found}")
    return array
