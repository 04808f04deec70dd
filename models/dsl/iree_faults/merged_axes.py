"""The fault of products whose axes the compiler would merge wrongly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import Apply, Graph, Input, Tensor, make_graph, op_of
from hearthd.models.dsl.ops.elementwise import barrier
from hearthd.models.dsl.ops.matmul import dot_general, fills_tiles, free_axes
from hearthd.models.dsl.ops.shape import reshape, transpose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hearthd.models.dsl.types import TensorType


def merged_axes(node: Tensor) -> Graph | None:
    """A product's graph, on inputs of the same types, in which matrices have two axes.

    Only of several matrices that need padding in tiles, with rows or terms that are spread over
    several axes. The compiler transposes and merges such axes behind a barrier of the operand, and
    then fills the padding with the rows of the next matrix, as it does without a barrier.
    """
    if op_of(node) is not dot_general:
        return None
    assert isinstance(node.origin, Apply)
    attrs = node.origin.attrs
    inputs = tuple(Tensor(x.type, Input(f"x{i}")) for i, x in enumerate(node.inputs))
    sides = [
        (x, (batch, free_axes(x.type.rank, batch, summed), summed))
        for x, batch, summed in zip(inputs, attrs["batch"], attrs["contract"], strict=True)
    ]
    matrices = _extent(inputs[0].type, attrs["batch"][0])
    is_padded = any(not fills_tiles(_extent(x.type, free)) for x, (_, free, _) in sides)
    is_merged = any(_merges(x.type, axes) for x, groups in sides for axes in groups[1:])
    if matrices == 1 or not (is_padded and is_merged):
        return None
    left, right = (
        barrier(
            reshape(
                transpose(x, order=tuple(axis for axes in groups for axis in axes)),
                shape=tuple(_extent(x.type, axes) for axes in groups),
            )
        )
        for x, groups in sides
    )
    product = dot_general(
        left, right, batch=((0,), (0,)), contract=((2,), (2,)), dtype=attrs["dtype"]
    )
    return make_graph("product", inputs, (reshape(product, shape=node.shape),), {}, {})


def _extent(tensor_type: TensorType, axes: Iterable[int]) -> int:
    return math.prod(tensor_type.shape[axis] for axis in axes)


def _merges(tensor_type: TensorType, axes: Iterable[int]) -> bool:
    return sum(tensor_type.shape[axis] > 1 for axis in axes) > 1
