"""Compute a graph in NumPy: the reference that every compiled program is compared with."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl.graph import Apply, Tensor
from hearthd.models.dsl.types import DslError, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.models.dsl.graph import Graph
    from hearthd.models.dsl.ops.record import Array

_MIN_NORMAL = 2.0**-126
_MANTISSA_BITS = {DType.F32: 23, DType.BF16: 7}
# Elements that are looked at together: they stay in the cache of a core.
_BLOCK = 1 << 16


def _unchanged(_: Tensor, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    return arrays


def evaluate(
    graph: Graph,
    inputs: Sequence[Array],
    parameters: Mapping[str, Array],
    *,
    replace: Callable[[Tensor, tuple[Array, ...]], tuple[Array, ...]] = _unchanged,
) -> list[Array]:
    """The graph's outputs for these inputs.

    `replace` is told each node and the arrays that its op takes, and returns those that it shall
    take instead.

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
        arrays = replace(node, tuple(value(source) for source in node.inputs))
        result = _checked(op.evaluate(arrays, attrs), node, f"{graph.name}: {op.name}")
        values[id(node)] = (
            _without_subnormals(result, node.dtype) if _is_computed(result, arrays) else result
        )
    return [value(output) for output in graph.outputs]


def _is_computed(result: Array, arrays: Sequence[Array]) -> bool:
    """Whether a result may have subnormals: it is neither a view nor made of integers alone."""
    if arrays and all(array.dtype.kind in "iu" for array in arrays):
        return False
    return not any(np.may_share_memory(result, array) for array in arrays)


def _without_subnormals(array: Array, dtype: DType) -> Array:
    """Zeros in place of subnormal f32 and bf16, as in a program's threads.

    A program that only moves such numbers keeps them.
    """
    if dtype not in _MANTISSA_BITS or not _has_subnormals(array, _MANTISSA_BITS[dtype]):
        return array
    subnormal = (np.abs(array) < _MIN_NORMAL) & (array != 0)
    return np.where(subnormal, np.copysign(array.dtype.type(0), array), array)


def _has_subnormals(array: Array, mantissa_bits: int) -> bool:
    """Whether a number has the exponent 0 and a mantissa that is not 0.

    Without its sign and minus one, such a number is below all others: zero becomes the largest.
    """
    bits = array.reshape(-1).view(f"u{array.itemsize}")
    for start in range(0, bits.size, _BLOCK):
        magnitude = bits[start : start + _BLOCK] << 1
        magnitude -= 1
        if magnitude.min() < (2 << mantissa_bits) - 1:
            return True
    return False


def _checked(array: Array, tensor: Tensor, where: str) -> Array:
    if array.shape != tensor.shape or array.dtype != tensor.dtype.numpy:
        got = TensorType(array.shape, DType.of(array.dtype))
        raise DslError(f"{where}: expected {tensor.type}, got {got}")
    return array
