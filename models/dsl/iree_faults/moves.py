"""Faults of slices, paddings and updates: operands, by their index, that are read behind a barrier.

Where the compiler refuses to compile one of these, it moves elements in the kernel that computes
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import Apply, op_of
from hearthd.models.dsl.iree_faults.tensor_sets import VIEWS, is_view_of
from hearthd.models.dsl.ops.elementwise import multiply
from hearthd.models.dsl.ops.indexing import gather, scatter
from hearthd.models.dsl.ops.shape import pad, reverse, slice_

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.iree_faults.tensor_sets import TensorSets


def reversed_slice(node: Tensor, sets: TensorSets) -> set[int]:
    """A slice with a stride that is reversed, or that rows are gathered from."""
    is_affected = op_of(node) in (reverse, gather) and _reads_slice(node, _has_stride, sets)
    return {0} if is_affected else set()


def gathered_column(node: Tensor, sets: TensorSets) -> set[int]:
    """A slice of one column that is reversed, or that rows are gathered from."""
    is_affected = op_of(node) in (reverse, gather) and _reads_slice(node, _is_column, sets)
    return {0} if is_affected else set()


def updated_slice(node: Tensor, _: TensorSets) -> set[int]:
    """A slice that a scatter updates: the compiler would, in the kernel that cuts it out."""
    return {0} if op_of(node) is scatter and is_view_of(node.inputs[0], slice_) else set()


def padded_update(node: Tensor, _: TensorSets) -> set[int]:
    """The result of a scatter that is padded: the compiler would, in the kernel of the update."""
    return {0} if op_of(node) is pad and is_view_of(node.inputs[0], scatter) else set()


def padded_sum(node: Tensor, sets: TensorSets) -> set[int]:
    """The padded operand, if it is computed from a tensor with several readers.

    The compiler pads in the kernel of a sum with several readers.
    """
    if op_of(node) is not pad:
        return set()
    return {0} if any(id(source) in sets.shared for source in node.inputs[0].inputs) else set()


def padded_before(node: Tensor, _: TensorSets) -> set[int]:
    """The operand of a padding between elements.

    The compiler merges two paddings to one that leaves out the zeros between, and rejects some
    kernels that write between elements.
    """
    return {0} if padded_between(node) else set()


def padded_between(node: Tensor) -> bool:
    """Whether a node pads between elements: merged with a padding behind it, it would not."""
    if op_of(node) is not pad:
        return False
    assert isinstance(node.origin, Apply)
    return any(between for *_, between in node.origin.attrs["padding"])


def _reads_slice(node: Tensor, matches: Callable[[Tensor], bool], sets: TensorSets) -> bool:
    """Whether the first operand is a view of a slice that matches.

    It may be multiplied by a constant: the compiler leaves out a factor of one.
    """
    tensor = node.inputs[0]
    while isinstance(tensor.origin, Apply):
        if op_of(tensor) is slice_ and matches(tensor):
            return True
        varying = [source for source in tensor.inputs if id(source) not in sets.repeated]
        if op_of(tensor) in VIEWS:
            tensor = tensor.inputs[0]
        elif op_of(tensor) is multiply and len(varying) == 1:
            (tensor,) = varying
        else:
            return False
    return False


def _has_stride(part: Tensor) -> bool:
    assert isinstance(part.origin, Apply)
    return any(stride != 1 for *_, stride in part.origin.attrs["bounds"])


def _is_column(part: Tensor) -> bool:
    """Whether a slice keeps one element of the last axis that has several."""
    extents = zip(part.inputs[0].shape, part.shape, strict=True)
    return next((end for start, end in reversed(list(extents)) if start > 1), 0) == 1
