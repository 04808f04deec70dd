"""Ops that pick and place rows by computed indices.

Indices must be in range. Out of range, `gather` clamps them and `scatter` is undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl.ops.creation import full, full_like
from hearthd.models.dsl.ops.record import (
    Array,
    Attrs,
    Lowering,
    Op,
    Reads,
    Sample,
    Types,
    combiner,
    integers,
    operands,
    require,
)
from hearthd.models.dsl.ops.samples import normal
from hearthd.models.dsl.ops.shape import reshape, transpose
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["gather", "scatter"]


# --- gather: operand[..., indices, ...] along one axis


def _infer_gather(types: Types, attrs: Attrs) -> TensorType:
    (operand, indices), axis = operands(types, 2), attrs["axis"]
    require(indices.dtype is DType.I32, "i32 indices")
    require(0 <= axis < operand.rank, f"an axis below {operand.rank}")
    return operand.with_shape(*operand.shape[:axis], *indices.shape, *operand.shape[axis + 1 :])


def _lower_gather(types: Types, _: TensorType, attrs: Attrs) -> Lowering:
    (operand, indices), axis = types, attrs["axis"]
    behind = range(axis + indices.rank, operand.rank - 1 + indices.rank)
    sizes = (*operand.shape[:axis], 1, *operand.shape[axis + 1 :])
    return Lowering(
        "stablehlo.gather",
        f"dimension_numbers = #stablehlo.gather<offset_dims = {[*range(axis), *behind]}, "
        f"collapsed_slice_dims = [{axis}], start_index_map = [{axis}], "
        f"index_vector_dim = {indices.rank}>, slice_sizes = {integers(sizes)}",
    )


def _vjp_gather(
    upstream: Tensor, inputs: tuple[Tensor, ...], _: Tensor, attrs: Attrs
) -> tuple[Tensor | None, ...]:
    """Each picked row adds its gradient to the row that it came from."""
    (operand, indices), axis = inputs, attrs["axis"]
    before, behind = operand.shape[:axis], operand.shape[axis + 1 :]
    picks = indices.type.size
    rows = reshape(upstream, shape=(*before, picks, *behind))
    to_front = (axis, *(i for i in range(operand.type.rank) if i != axis))
    back = tuple(int(i) for i in np.argsort(to_front))
    zeros = full(shape=(operand.shape[axis], *before, *behind), dtype=operand.dtype, value=0.0)
    summed = scatter(
        zeros,
        reshape(indices, shape=(picks,)),
        transpose(rows, order=to_front),
        combine="add",
    )
    return transpose(summed, order=back), None


gather: Op = Op(
    name="gather",
    doc="The operand's slices along `axis` at the given indices; they take the place of that axis.",
    infer=_infer_gather,
    evaluate=lambda arrays, attrs: np.take(arrays[0], arrays[1], axis=attrs["axis"], mode="clip"),
    lower=_lower_gather,
    vjp=_vjp_gather,
    samples=lambda rng: [
        Sample((normal(rng, 6, 3), np.array([0, 2, 2, 5], np.int32)), {"axis": 0}),
        Sample((normal(rng, 2, 5, 3), np.array([[4, 1], [1, 0]], np.int32)), {"axis": 1}),
        Sample((normal(rng, 4, 3), np.array(2, np.int32)), {"axis": 0}),
    ],
    reads=Reads.LOOKED_UP,
    is_stored=False,
)


# --- scatter: operand with rows replaced or added to


def _infer_scatter(types: Types, attrs: Attrs) -> TensorType:
    operand, indices, updates = operands(types, 3)
    require(
        indices.dtype is DType.I32
        and indices.rank == 1
        and updates == operand.with_shape(*indices.shape, *operand.shape[1:]),
        "i32 indices of rank 1 and updates like the operand's rows",
    )
    require(attrs["combine"] in ("add", "replace"), "combine to be add or replace")
    return operand


def _evaluate_scatter(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    operand, indices, updates = arrays
    result = operand.copy()
    if attrs["combine"] == "add":
        np.add.at(result, indices, updates)
    else:
        result[indices] = updates
    return result


def _lower_scatter(_: Types, result: TensorType, attrs: Attrs) -> Lowering:
    window = list(range(1, result.rank))
    replace = attrs["combine"] == "replace"
    scalar = TensorType((), result.dtype).mlir
    second = f'^bb0(%a: {scalar}, %b: {scalar}): "stablehlo.return"(%b) : ({scalar}) -> ()'
    return Lowering(
        "stablehlo.scatter",
        "scatter_dimension_numbers = #stablehlo.scatter<"
        f"update_window_dims = {window}, inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
        f"indices_are_sorted = false, unique_indices = {'true' if replace else 'false'}",
        region=second if replace else combiner("stablehlo.add", result.dtype),
    )


def _vjp_scatter(
    upstream: Tensor, inputs: tuple[Tensor, ...], _: Tensor, attrs: Attrs
) -> tuple[Tensor | None, ...]:
    _, indices, updates = inputs
    placed = gather(upstream, indices, axis=0)
    if attrs["combine"] == "add":
        return upstream, None, placed
    kept = scatter(upstream, indices, full_like(updates, 0.0), combine="replace")
    return kept, None, placed


scatter: Op = Op(
    name="scatter",
    doc="The operand with its rows at the indices replaced by the updates, or added to.",
    infer=_infer_scatter,
    evaluate=_evaluate_scatter,
    lower=_lower_scatter,
    vjp=_vjp_scatter,
    samples=lambda rng: [
        Sample(
            (normal(rng, 5, 3), np.array([4, 0], np.int32), normal(rng, 2, 3)),
            {"combine": "replace"},
        ),
        Sample(
            (normal(rng, 3, 2, 2), np.array([0, 2, 2, 1], np.int32), normal(rng, 4, 2, 2)),
            {"combine": "add"},
        ),
    ],
    reads=Reads.IN_PLACE,
    is_stored=True,
)
