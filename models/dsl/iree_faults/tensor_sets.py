"""Sets of a graph's tensors, by their ids, on which faults of the compiler depend."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import Apply, op_of, readers_of
from hearthd.models.dsl.ops.creation import full
from hearthd.models.dsl.ops.elementwise import barrier, convert
from hearthd.models.dsl.ops.indexing import gather, scatter
from hearthd.models.dsl.ops.matmul import DECODE_ROWS, dot_general, project
from hearthd.models.dsl.ops.record import Reads
from hearthd.models.dsl.ops.reduction import reduce_max, reduce_sum
from hearthd.models.dsl.ops.shape import (
    broadcast,
    concatenate,
    pad,
    reshape,
    reverse,
    slice_,
    transpose,
)

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.dsl.ops.record import Op

# Ops that the compiler may leave out where extents are 1.
MOVES = (reshape, transpose, slice_, reverse, broadcast, concatenate, pad, gather, barrier)
VIEWS = (reshape, transpose, slice_, broadcast, convert)


class TensorSets:
    """The sets of one graph, each found when it is first asked for."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def repeated(self) -> set[int]:
        """Tensors that are computed from broadcasts and constants alone.

        A gather from a single row is a broadcast.
        """
        repeated: set[int] = set()
        for node in self._graph.nodes:
            op = op_of(node)
            if (
                op in (broadcast, full)
                or _gathers_from_one_row(node)
                or all(
                    id(source) in repeated and (op in MOVES or source.shape == node.shape)
                    for source in node.inputs or (node,)
                )
            ):
                repeated.add(id(node))
        return repeated

    @cached_property
    def computed(self) -> set[int]:
        """Tensors that are computed from inputs, and are not views of them or of caches."""
        varying = {id(tensor) for tensor in self._graph.inputs}
        views, computed = set[int](varying), set[int]()
        for node in self._graph.nodes:
            sources = [id(source) for source in node.inputs if id(source) in varying]
            if not sources:
                continue
            varying.add(id(node))
            if op_of(node) is scatter or (op_of(node) in VIEWS and views.issuperset(sources)):
                views.add(id(node))
            else:
                computed.add(id(node))
        return computed

    @cached_property
    def combined_with_products(self) -> set[int]:
        """Products of more than a few rows, and what is computed from them in their size."""
        found = set[int]()
        for node in self._graph.nodes:
            if (is_product(node) and operand_rows(node, 0) > DECODE_ROWS) or (
                op_of(node) is not barrier
                and any(
                    id(source) in found and source.type.size == node.type.size
                    for source in node.inputs
                )
            ):
                found.add(id(node))
        return found

    @cached_property
    def summed(self) -> set[int]:
        """Computed tensors that are also reduced to one number."""
        summed: set[int] = set()
        for node in reversed(self._graph.nodes):
            if op_of(node) in (reduce_max, reduce_sum) and node.type.size == 1:
                summed.update(id(source) for source in node.inputs if source.type.size > 1)
            elif id(node) in summed:
                summed.update(
                    id(source) for source in node.inputs if source.type.size == node.type.size
                )
        return summed & {id(node) for node in self._graph.nodes}

    @cached_property
    def shared(self) -> set[int]:
        """Computed tensors with more than one reader.

        A view of an input or of an updated cache is not computed.
        """
        readers = readers_of(self._graph)
        views, shared = set[int](), set[int]()
        for node in self._graph.nodes:
            computed = [id(source) for source in node.inputs if isinstance(source.origin, Apply)]
            is_view = op_of(node) in VIEWS
            if op_of(node) is scatter or (is_view and views.issuperset(computed)):
                views.add(id(node))
            elif readers[id(node)] > 1 or (is_view and not shared.isdisjoint(computed)):
                shared.add(id(node))
        return shared


def is_product(node: Tensor) -> bool:
    """Whether a node is a product whose operands the compiler packs."""
    return isinstance(node.origin, Apply) and node.origin.op.reads is Reads.LAID_OUT


def has_one_term(node: Tensor) -> bool:
    """Whether a node is a product that adds up a single term."""
    if op_of(node) is not dot_general:
        return False
    assert isinstance(node.origin, Apply)
    summed: tuple[int, ...] = node.origin.attrs["contract"][0]
    return math.prod(node.inputs[0].shape[axis] for axis in summed) == 1


def operand_rows(product: Tensor, side: int) -> int:
    """The rows that an operand of a product has in each matrix."""
    assert isinstance(product.origin, Apply)
    attrs, operand = product.origin.attrs, product.inputs[side]
    if op_of(product) is project:
        return operand.shape[0]
    summed = (*attrs["batch"][side], *attrs["contract"][side])
    rows: int = operand.type.size // math.prod(operand.shape[axis] for axis in summed)
    return rows


def is_view_of(tensor: Tensor, op: Op) -> bool:
    """Whether a tensor is a result of the op, or a view of one."""
    while op_of(tensor) in VIEWS and op_of(tensor) is not op:
        tensor = tensor.inputs[0]
    return op_of(tensor) is op


def _gathers_from_one_row(node: Tensor) -> bool:
    if op_of(node) is not gather:
        return False
    assert isinstance(node.origin, Apply)
    axis: int = node.origin.attrs["axis"]
    return node.inputs[0].shape[axis] == 1
