"""Faults of products: which operands, by their index, are read behind a barrier."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import Apply, op_of
from hearthd.models.dsl.iree_faults.tensor_sets import (
    has_one_term,
    is_product,
    is_view_of,
    operand_rows,
)
from hearthd.models.dsl.ops.convolution import convolution
from hearthd.models.dsl.ops.elementwise import convert
from hearthd.models.dsl.ops.indexing import gather
from hearthd.models.dsl.ops.matmul import (
    DECODE_ROWS,
    dot_general,
    fills_tiles,
    free_axes,
    vector_sides,
)
from hearthd.models.dsl.ops.shape import broadcast, reverse, slice_
from hearthd.models.dsl.types import NARROW, DType

if TYPE_CHECKING:
    from collections.abc import Set

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.iree_faults.tensor_sets import TensorSets


def packed_rows(node: Tensor, _: TensorSets) -> set[int]:
    """Operands of several matrices that need padding in tiles.

    The compiler computes and packs an operand in one dispatch, and moves the packing in front of a
    reshape of (batch * rows, K) to (batch, rows, K): it puts the rows of the next matrix where the
    padding of one belongs.
    """
    if op_of(node) is not dot_general:
        return set()
    assert isinstance(node.origin, Apply)
    batch, contract = node.origin.attrs["batch"], node.origin.attrs["contract"]
    if math.prod(node.inputs[0].shape[axis] for axis in batch[0]) == 1:
        return set()
    padded = set()
    for i, operand in enumerate(node.inputs):
        free = free_axes(operand.type.rank, batch[i], contract[i])
        if not fills_tiles(math.prod(operand.shape[axis] for axis in free)):
            padded.add(i)
    return padded


def repeated_rows(node: Tensor, sets: TensorSets) -> set[int]:
    """Operands of a product whose rows are all the same.

    The compiler crashes when it packs one that it computes in the same dispatch.
    """
    return _members(node, sets.repeated) if is_product(node) else set()


def repeated_weights(node: Tensor, sets: TensorSets) -> set[int]:
    """Operands of a convolution that are repeated: the compiler makes products of some."""
    return _members(node, sets.repeated) if op_of(node) is convolution else set()


def packed_in_a_sum(node: Tensor, sets: TensorSets) -> set[int]:
    """Operands of a product that are reduced to one number, too.

    The compiler refuses to pack such a tensor in the dispatch that reduces it.
    """
    return _members(node, sets.summed) if is_product(node) else set()


def written_by_a_matvec(node: Tensor, sets: TensorSets) -> set[int]:
    """Operands of a product with a vector that something else reads, and results of such products.

    The compiler computes such a tensor in the dispatch of a product with a vector that reads it,
    and then refuses to write it there. So it does where such a product computes it, and another
    product packs it. A convolution of single elements becomes products with vectors.
    """
    shared = _members(node, sets.shared)
    if op_of(node) is convolution:
        return shared if all(extent == 1 for extent in node.inputs[1].shape[2:]) else set()
    if not is_product(node):
        return set()
    vectors = vector_sides(node)
    return {
        i
        for i in shared
        if (vectors[1 - i] and not vectors[i]) or any(vector_sides(node.inputs[i]))
    }


def product_of_one_term(node: Tensor, _: TensorSets) -> set[int]:
    """Both operands of a product that adds up a single term; its result has a barrier, too.

    The compiler replaces it by a multiplication, and fuses that with products of vectors that it
    cannot write so, or packs it for a sum.
    """
    return {0, 1} if has_one_term(node) else set()


def converted_reshape(node: Tensor, _: TensorSets) -> set[int]:
    """Both operands of a product that adds up a single term.

    The compiler gives a conversion that others read the operand's shape before a reshape.
    """
    return {0, 1} if has_one_term(node) else set()


def large_vector_sizes(node: Tensor, sets: TensorSets) -> set[int]:
    """Computed operands of products of many rows; slices that are combined with such products.

    The compiler packs an operand of a product in the dispatch that computes it, and refuses some: a
    norm whose input is packed for another product, what attention returns, the product of a gate.
    With a few rows it does not. It computes tiles of a product, and gathers the tiles of a slice of
    another tensor element by element. It also computes a product in the dispatch that repeats it,
    as a choice of experts by their logits does.
    """
    if op_of(node) is broadcast:
        return {0} if is_product(node.inputs[0]) else set()
    if is_product(node):
        return {i for i in _members(node, sets.computed) if operand_rows(node, i) > DECODE_ROWS}
    if op_of(node) in (convolution, reverse, gather) or id(node) not in sets.combined_with_products:
        return set()
    return {
        i
        for i, source in enumerate(node.inputs)
        if is_view_of(source, slice_) and id(source) not in sets.combined_with_products
    }


def narrow_groups(node: Tensor, _: TensorSets) -> set[int]:
    """Operands of a convolution in groups that are converted from narrow floats."""
    if op_of(node) is not convolution or node.inputs[0].dtype not in NARROW:
        return set()
    assert isinstance(node.origin, Apply)
    return {0, 1} if node.origin.attrs["groups"] > 1 else set()


def one_hot_rows(node: Tensor) -> bool:
    """Whether a node converts a boolean: fused with a product, true would become -1."""
    return op_of(node) is convert and node.inputs[0].dtype is DType.BOOL


def _members(node: Tensor, tensors: Set[int]) -> set[int]:
    return {i for i, source in enumerate(node.inputs) if id(source) in tensors}
