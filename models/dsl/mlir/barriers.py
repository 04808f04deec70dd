"""Which tensors the compiler must not fuse with what reads them, because it does that wrongly.

docs/iree-reports.md has a program for each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.models.dsl.functions.products import DECODE_ROWS
from hearthd.models.dsl.graph import Apply, Graph, Input, Parameter, Tensor, op_of, readers_of
from hearthd.models.dsl.ops.convolution import convolution
from hearthd.models.dsl.ops.creation import full
from hearthd.models.dsl.ops.elementwise import barrier, convert, multiply
from hearthd.models.dsl.ops.indexing import gather, scatter
from hearthd.models.dsl.ops.matmul import project, vector_sides
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
    from hearthd.models.dsl.ops.record import Op

# Ops that the compiler may leave out where extents are 1.
MOVES = (reshape, transpose, slice_, reverse, broadcast, concatenate, pad, gather, barrier)
_VIEWS = (reshape, transpose, slice_, broadcast, convert)


class Barriers:
    """The operands of a graph's nodes that are read behind barriers."""

    def __init__(self, graph: Graph) -> None:
        self._constant = _repeated(graph)
        self._unpacked = self._constant | _summed(graph)
        self._shared = _shared(graph)
        self._computed = _computed(graph)
        self._products = _products(graph)

    def before(self, node: Tensor) -> tuple[int, ...]:
        """The operands of a node, by their index, that the compiler must not fuse with it."""
        if isinstance(node.origin, Apply) and node.origin.op.reads is Reads.LAID_OUT:
            return self._before_product(node)
        if op_of(node) is convolution:
            # The compiler makes products of some; of single elements, also products with vectors.
            is_product = all(extent == 1 for extent in node.inputs[1].shape[2:])
            kept_apart = self._constant | (self._shared if is_product else set())
            return tuple(i for i, source in enumerate(node.inputs) if id(source) in kept_apart)
        if op_of(node) in (reverse, gather):
            return (0,) if self._is_strided(node.inputs[0]) else ()
        if id(node) in self._products:
            # Of a product, tiles are computed, and IREE 3.13.0 gathers those of a slice of another
            # tensor element by element: "large vector sizes".
            return tuple(
                i
                for i, source in enumerate(node.inputs)
                if _is_view_of(source, slice_) and id(source) not in self._products
            )
        # IREE 3.13.0 updates a slice in the kernel that cuts it out. It pads in the kernel of an
        # update, or of a sum with several readers.
        is_updated_slice = op_of(node) is scatter and _is_view_of(node.inputs[0], slice_)
        is_padded_there = op_of(node) is pad and (
            _is_view_of(node.inputs[0], scatter)
            or any(id(source) in self._shared for source in node.inputs[0].inputs)
        )
        return (0,) if is_updated_slice or is_padded_there else ()

    def _is_strided(self, tensor: Tensor) -> bool:
        """Whether a tensor is a view of a slice with a stride or of one column.

        It may be multiplied by a constant: the compiler leaves out a factor of one. IREE 3.13.0
        fails to translate the reverse of a slice that has a stride along its last axis, and a
        gather from it.
        """
        while isinstance(tensor.origin, Apply):
            if op_of(tensor) is slice_ and _skips_elements(tensor):
                return True
            varying = [source for source in tensor.inputs if id(source) not in self._constant]
            if op_of(tensor) in _VIEWS:
                tensor = tensor.inputs[0]
            elif op_of(tensor) is multiply and len(varying) == 1:
                (tensor,) = varying
            else:
                return False
        return False

    def _before_product(self, product: Tensor) -> tuple[int, ...]:
        vectors = vector_sides(product)
        return tuple(
            i
            for i, source in enumerate(product.inputs)
            if id(source) in self._unpacked
            or (id(source) in self._computed and _rows(product, i) > DECODE_ROWS)
            or (
                id(source) in self._shared
                and ((vectors[1 - i] and not vectors[i]) or any(vector_sides(source)))
            )
        )


def _rows(product: Tensor, side: int) -> int:
    """The rows that an operand of a product has in each matrix."""
    assert isinstance(product.origin, Apply)
    attrs, operand = product.origin.attrs, product.inputs[side]
    if op_of(product) is project:
        return operand.shape[0]
    summed = (*attrs["batch"][side], *attrs["contract"][side])
    rows: int = operand.type.size // math.prod(operand.shape[axis] for axis in summed)
    return rows


def _is_view_of(tensor: Tensor, op: Op) -> bool:
    while op_of(tensor) in _VIEWS and op_of(tensor) is not op:
        tensor = tensor.inputs[0]
    return op_of(tensor) is op


def _skips_elements(part: Tensor) -> bool:
    """Whether a slice has a stride, or keeps one element of the last axis that has several."""
    assert isinstance(part.origin, Apply)
    extents = zip(part.inputs[0].shape, part.shape, strict=True)
    last = next((after for before, after in reversed(list(extents)) if before > 1), 0)
    return last == 1 or any(stride != 1 for *_, stride in part.origin.attrs["bounds"])


def may_be_overwritten(output: Tensor, graph: Graph) -> bool:
    """Whether an output may share the storage of an input that a scatter updates.

    IREE 3.13.0 updates an input in place that is a result too, as it is or in another shape, also
    when it is multiplied by one.
    """
    updated = [node.inputs[0] for node in graph.nodes if op_of(node) is scatter]
    if all(op_of(operand) is full for operand in updated):
        return False
    constant = _repeated(graph)
    while output.inputs:
        varying = [source for source in output.inputs if id(source) not in constant]
        if op_of(output) not in MOVES and len(varying) != 1:
            return False
        output = output.inputs[0] if op_of(output) in MOVES else varying[0]
    return isinstance(output.origin, Input | Parameter)


def _repeated(graph: Graph) -> set[int]:
    """The ids of the tensors that are computed from broadcasts and constants alone.

    A gather from a single row is a broadcast.

    IREE 3.13.0 crashes when it packs an operand of a product whose rows are all the same, and
    which it computes in the same dispatch.
    """
    broadcasts: set[int] = set()
    for node in graph.nodes:
        op = op_of(node)
        if (
            op in (broadcast, full)
            or _is_of_one_row(node)
            or all(
                id(source) in broadcasts and (op in MOVES or source.shape == node.shape)
                for source in node.inputs or (node,)
            )
        ):
            broadcasts.add(id(node))
    return broadcasts


def _is_of_one_row(node: Tensor) -> bool:
    if op_of(node) is not gather:
        return False
    assert isinstance(node.origin, Apply)
    axis: int = node.origin.attrs["axis"]
    return node.inputs[0].shape[axis] == 1


def _computed(graph: Graph) -> set[int]:
    """The ids of the tensors that are computed from inputs, and are not views of them or of caches.

    IREE 3.13.0 packs an operand of a product in the dispatch that computes it, and refuses some of
    them, with "large vector sizes": a norm whose input is packed for another product, what
    attention returns, the product of a gate. With a few rows it does not.
    """
    varying = {id(tensor) for tensor in graph.inputs}
    views, computed = set[int](varying), set[int]()
    for node in graph.nodes:
        sources = [id(source) for source in node.inputs if id(source) in varying]
        if not sources:
            continue
        varying.add(id(node))
        if op_of(node) is scatter or (op_of(node) in _VIEWS and views.issuperset(sources)):
            views.add(id(node))
        else:
            computed.add(id(node))
    return computed


def _products(graph: Graph) -> set[int]:
    """The ids of the products of more than a few rows, and of the tensors of the same size that are
    computed from them."""
    products = set[int]()
    for node in graph.nodes:
        is_product = isinstance(node.origin, Apply) and node.origin.op.reads is Reads.LAID_OUT
        if (is_product and _rows(node, 0) > DECODE_ROWS) or (
            op_of(node) is not barrier
            and any(
                id(source) in products and source.type.size == node.type.size
                for source in node.inputs
            )
        ):
            products.add(id(node))
    return products


def _summed(graph: Graph) -> set[int]:
    """The ids of the tensors that are computed, and that are reduced to one number, too.

    IREE 3.13.0 refuses to pack such a tensor for a product in the dispatch that reduces it.
    """
    summed: set[int] = set()
    for node in reversed(graph.nodes):
        if op_of(node) in (reduce_max, reduce_sum) and node.type.size == 1:
            summed.update(id(source) for source in node.inputs if source.type.size > 1)
        elif id(node) in summed:
            summed.update(
                id(source) for source in node.inputs if source.type.size == node.type.size
            )
    return summed & {id(node) for node in graph.nodes}


def _shared(graph: Graph) -> set[int]:
    """The ids of the tensors that are computed, and read more than once.

    IREE 3.13.0 computes such a tensor in the dispatch of a product with a vector that reads it, and
    then refuses to write it there. So it does where such a product computes it, and another product
    packs it. A view of an input or of an updated cache is not computed.
    """
    readers = readers_of(graph)
    views, shared = set[int](), set[int]()
    for node in graph.nodes:
        computed = [id(source) for source in node.inputs if isinstance(source.origin, Apply)]
        is_view = op_of(node) in _VIEWS
        if op_of(node) is scatter or (is_view and views.issuperset(computed)):
            views.add(id(node))
        elif readers[id(node)] > 1 or (is_view and not shared.isdisjoint(computed)):
            shared.add(id(node))
    return shared
