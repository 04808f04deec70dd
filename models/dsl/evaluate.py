"""Compute a graph in NumPy: the reference that every compiled program is compared with."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from models.dsl.graph import Apply, Tensor
from models.dsl.types import DslError, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from models.dsl.graph import Graph
    from models.dsl.ops.record import Array

_MIN_NORMAL = 2.0**-126


def evaluate(graph: Graph, inputs: Sequence[Array], parameters: Mapping[str, Array]) -> list[Array]:
    """The graph's outputs for these inputs.

    Parameters are looked up by name when first needed, so a mapping that reads them from disk
    keeps memory low; an intermediate value is dropped after its last use. Raises DslError when an
    array does not have the type of its tensor. The caller, the weights and the ops are checked.
    """
    if len(inputs) != len(graph.inputs):
        raise DslError(f"{graph.name}: expected {len(graph.inputs)} inputs, got {len(inputs)}")
    values: dict[int, Array] = {}
    for tensor, array in zip(graph.inputs, inputs, strict=True):
        checked = _checked(array, tensor, graph.name)
        values[id(tensor)] = _without_subnormals(checked, tensor.dtype)
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
        result = _checked(op.evaluate(arrays, attrs), node, f"{graph.name}: {op.name}")
        values[id(node)] = _without_subnormals(result, node.dtype)
    return [value(output) for output in graph.outputs]


def _without_subnormals(array: Array, dtype: DType) -> Array:
    """Zeros in the place of subnormal f32 and bf16, as a program's threads count them.

    A program that only moves such numbers keeps them.
    """
    if dtype not in (DType.F32, DType.BF16):
        return array
    subnormal = (np.abs(array) < _MIN_NORMAL) & (array != 0)
    return (
        np.where(subnormal, np.copysign(array.dtype.type(0), array), array)
        if subnormal.any()
        else array
    )


def _checked(array: Array, tensor: Tensor, where: str) -> Array:
    array_type = TensorType(array.shape, DType.of(array.dtype))
    if array_type != tensor.type:
        raise DslError(f"{where}: expected {tensor.type}, got {array_type}")
    return array
