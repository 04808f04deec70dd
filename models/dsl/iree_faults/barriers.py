"""The operands and results of a node that the compiler must not fuse with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.iree_faults.moves import (
    gathered_column,
    padded_before,
    padded_between,
    padded_sum,
    padded_update,
    reversed_slice,
    updated_slice,
)
from hearthd.models.dsl.iree_faults.products import (
    converted_reshape,
    large_vector_sizes,
    narrow_groups,
    one_hot_rows,
    packed_in_a_sum,
    packed_rows,
    product_of_one_term,
    repeated_rows,
    repeated_weights,
    written_by_a_matvec,
)
from hearthd.models.dsl.iree_faults.tensor_sets import has_one_term

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.iree_faults.tensor_sets import TensorSets

_OPERAND_FAULTS = (
    converted_reshape,
    gathered_column,
    large_vector_sizes,
    narrow_groups,
    packed_in_a_sum,
    packed_rows,
    padded_before,
    padded_sum,
    padded_update,
    product_of_one_term,
    repeated_rows,
    repeated_weights,
    reversed_slice,
    updated_slice,
    written_by_a_matvec,
)
_RESULT_FAULTS = (has_one_term, one_hot_rows, padded_between)


def operands_behind_barriers(node: Tensor, sets: TensorSets) -> list[int]:
    """The operands of a node, by their index, that it reads behind barriers.

    `sets` are the tensor sets of its graph.
    """
    return sorted(set[int]().union(*(fault(node, sets) for fault in _OPERAND_FAULTS)))


def is_behind_barrier(node: Tensor) -> bool:
    """Whether all that reads a node reads it behind a barrier."""
    return any(fault(node) for fault in _RESULT_FAULTS)
