"""The ways to store a matrix, and how products and lookups of its rows read it then."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.fused.bf16_products import times_bf16
from hearthd.models.dsl.fused.quantized_products import (
    embedding_quantized,
    linear_quantized,
    some_outputs,
)
from hearthd.models.dsl.fused.routed_products import routed_linear, routed_linear_quantized
from hearthd.models.dsl.fused.sketched_head import sketch_arrays, sketched_head
from hearthd.models.dsl.fused.two_part_head import ALL, two_part_head
from hearthd.models.dsl.matrix_format import GROUP, ROWS, STORED
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.matrix_format import MatrixFormat


@dataclass(frozen=True, kw_only=True, eq=False)
class Storage:
    """A way to store a matrix W (N, K) as one or more arrays.

    name     of the way
    arrays   (N, K) -> the arrays' types, by the last part of their names; raises TypeRuleError
    product  (x, *arrays, activation_bits) -> x W^T, which has more columns than N if the arrays of
             a table have more rows
    rows     (ids, *arrays) -> rows of W
    routed   (x, chosen, *arrays, experts, activation_bits) -> products with some of its rows, see
             `f.routed_linear`
    logits   (x, margin, *arrays, outputs, cap) -> x W^T, see `f.approximate_logits`; with
             `outputs`, of that many of its first rows; `cap` says that `f.soft_cap` follows
    drafts   (x, *arrays) -> x W^T for one row, see `f.draft_logits`
    partial  the arrays that `logits` reads in part, by blocks
    table    how a matrix is stored whose rows are looked up, or that computes logits; None: so too
    sketched  how a table is stored that computes the logits of drafts; None: so too
    has_sketch  whether a sketch of the matrix follows its other arrays
    format   of integers; None: floats
    """

    name: str
    arrays: Callable[[int, int], Mapping[str, TensorType]]
    product: Callable[..., Tensor]
    rows: Callable[..., Tensor]
    routed: Callable[..., Tensor]
    logits: Callable[..., Tensor]
    drafts: Callable[..., Tensor]
    partial: frozenset[str] = frozenset()
    table: Storage | None = None
    sketched: Storage | None = None
    has_sketch: bool = False
    format: MatrixFormat | None = None


def _floats(name: str, dtype: DType, product: Callable[[Tensor, Tensor], Tensor]) -> Storage:
    """One array of a dtype. `product` does not round activations as integers."""
    return Storage(
        name=name,
        arrays=lambda rows, columns: {"weight": TensorType((rows, columns), dtype)},
        product=lambda x, weight, **_: product(x, weight),
        rows=f.embedding,
        routed=lambda *tensors, experts, **_: routed_linear(*tensors, experts=experts),
        logits=lambda x, _, weight, outputs=None, **_cap: product(
            x, weight if outputs is None else f.narrow(weight, 0, 0, outputs)
        ),
        drafts=product,
    )


def _integers(matrix_format: MatrixFormat) -> Storage:
    """A matrix of a format whose products round activations."""
    attrs: Any = {"matrix_format": matrix_format.name}

    def product(x: Tensor, *arrays: Tensor, activation_bits: int) -> Tensor:
        rows = _padded(f.flatten_rows(x), arrays[0].shape[1] * GROUP)
        result = linear_quantized(rows, *arrays, **attrs, activation_bits=activation_bits)
        return ops.reshape(result, shape=(*x.shape[:-1], result.shape[1]))

    table = _table(matrix_format.table or matrix_format)
    return Storage(
        name=matrix_format.name,
        arrays=lambda rows, columns: _arrays(matrix_format, rows, -(-columns // GROUP) * GROUP),
        product=product,
        rows=table.rows,
        routed=functools.partial(routed_linear_quantized, **attrs),
        logits=table.logits,
        drafts=table.drafts,
        table=table,
        format=matrix_format,
    )


def _padded(rows: Tensor, columns: int) -> Tensor:
    """Rows (N, K) with zeros up to the columns of a matrix.

    The patches of an image, and the MLP of a vision tower, have widths that fill no group.
    """
    missing = columns - rows.shape[1]
    return ops.pad(rows, padding=((0, 0, 0), (0, missing, 0)), value=0.0) if missing else rows


def _arrays(matrix_format: MatrixFormat, rows: int, columns: int) -> Mapping[str, TensorType]:
    """The arrays of a matrix, with rows added up to a multiple of sixteen.

    Vocabularies, and the heads of Mamba-2 in a projection, have any number of rows.
    """
    return matrix_format.arrays(-(-rows // ROWS) * ROWS, columns)


def _table(matrix_format: MatrixFormat) -> Storage:
    """A matrix of a format whose rows are looked up, or that computes logits.

    Logits always have activations of 16 bits, or 12.
    """
    attrs: Any = {"matrix_format": matrix_format.name}
    split = matrix_format.split

    def logits(
        x: Tensor,
        margin: Tensor,
        *arrays: Tensor,
        outputs: int | None = None,
        cap: float | None = None,
    ) -> Tensor:
        if split is None:
            return linear_quantized(x, *arrays, **attrs, **some_outputs(outputs))
        return two_part_head(x, margin, arrays, matrix_format, outputs=outputs, cap=cap)

    def product(x: Tensor, *arrays: Tensor, **_: int) -> Tensor:
        rows = f.flatten_rows(x)
        margin = ops.full(shape=(rows.shape[0],), dtype=DType.I32, value=ALL)
        result = logits(rows, margin, *arrays)
        return ops.reshape(result, shape=(*x.shape[:-1], result.shape[1]))

    def rows(ids: Tensor, *arrays: Tensor) -> Tensor:
        flat = ops.reshape(ids, shape=(ids.type.size,))
        rows = embedding_quantized(flat, *arrays, **attrs)
        return ops.reshape(rows, shape=(*ids.shape, rows.shape[1]))

    lower = [plane.name for plane in matrix_format.planes if split and plane.start == 0]
    table = Storage(
        name=matrix_format.name,
        arrays=functools.partial(_arrays, matrix_format),
        product=product,
        rows=rows,
        routed=functools.partial(routed_linear_quantized, **attrs),
        logits=logits,
        drafts=lambda x, *arrays: linear_quantized(x, *arrays, **attrs),
        partial=frozenset(lower),
        format=matrix_format,
    )
    return replace(table, sketched=_sketched(table)) if split else table


def _sketched(table: Storage) -> Storage:
    """A table of a format in two parts, with a sketch that drafts read first."""
    matrix_format = table.format
    assert matrix_format is not None
    count = len(matrix_format.arrays(ROWS, GROUP))

    def without_sketch(read: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, *tensors, **attrs: read(x, *tensors[:-2], **attrs)

    return replace(
        table,
        name=f"{table.name}-sketched",
        arrays=lambda rows, columns: {
            **table.arrays(rows, columns),
            **sketch_arrays(-(-rows // ROWS) * ROWS, columns),
        },
        product=without_sketch(table.product),
        rows=without_sketch(table.rows),
        logits=without_sketch(table.logits),
        drafts=lambda x, *arrays: sketched_head(x, arrays[:count], arrays[count:], matrix_format),
        has_sketch=True,
    )


F32 = _floats("f32", DType.F32, f.times_weight)
BF16 = _floats("bf16", DType.BF16, times_bf16)
# Ways to store a matrix whose products have gradients, by name.
TRAINED: Mapping[str, Storage] = {
    storage.name: storage for storage in (F32, _floats("bf16", DType.BF16, f.times_weight))
}
# Ways to store a matrix, by name, without the ways to store a table.
STORAGES: Mapping[str, Storage] = {
    storage.name: storage for storage in (F32, BF16, *map(_integers, STORED))
}
