"""The ways to store a matrix, and how products and lookups of its rows read it then."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops, packing
from hearthd.models.dsl.fused.grouped_products import linear_grouped
from hearthd.models.dsl.fused.halved_products import embedding_halved, two_part_head
from hearthd.models.dsl.fused.routed_products import (
    linear_routed,
    linear_routed_grouped,
    linear_routed_small,
)
from hearthd.models.dsl.fused.small_products import (
    FORMS,
    INT6,
    INT12,
    embedding_small,
    linear_small,
)
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.packing import SmallForm

_WEIGHT = "weight"


@dataclass(frozen=True, kw_only=True, eq=False)
class Storage:
    """A way to store a matrix W (N, K) as one or more arrays.

    name     of the way
    arrays   (N, K) -> the arrays' types, by the last part of their names; raises TypeRuleError
    product  (x, *arrays, activation_bits) -> x W^T, which may have more columns than N: `_halves`
    rows     (ids, *arrays) -> rows of W
    routed   (x, chosen, *arrays, experts, activation_bits) -> products with some of its rows, see
             `f.routed_linear`
    logits   (x, exact, *arrays) -> x W^T, see `f.approximate_logits`
    partial  arrays of which `logits` reads some blocks only
    table    how a matrix is stored whose rows are looked up, or that computes logits; None: so too
    form     of integers that have their lowest four bits apart, if they have
    """

    name: str
    arrays: Callable[[int, int], Mapping[str, TensorType]]
    product: Callable[..., Tensor]
    rows: Callable[..., Tensor]
    routed: Callable[..., Tensor]
    logits: Callable[..., Tensor]
    partial: frozenset[str] = frozenset()
    table: Storage | None = None
    form: SmallForm | None = None


def _plain(name: str, dtype: DType) -> Storage:
    """One array of a dtype. Products do not round activations."""
    return Storage(
        name=name,
        arrays=lambda rows, columns: {_WEIGHT: TensorType((rows, columns), dtype)},
        product=lambda x, weight, **_: f.times_weight(x, weight),
        rows=f.embedding,
        routed=lambda *tensors, experts, **_: linear_routed(*tensors, experts=experts),
        logits=lambda x, _, weight: f.times_weight(x, weight),
    )


def _halves(rows: int, columns: int) -> Mapping[str, TensorType]:
    half = TensorType(packing.half_shape(_padded(rows), columns), DType.I8)
    return {"upper": half, "lower": half, "scale": _scale(half)}


def _padded(rows: int) -> int:
    """The rows that are stored: vocabularies have any number of rows."""
    return -(-rows // packing.ROWS) * packing.ROWS


def _scale(integers: TensorType) -> TensorType:
    return TensorType((*integers.shape[:2], packing.ROWS), DType.F16)


def _groups(rows: int, columns: int) -> Mapping[str, TensorType]:
    integers = TensorType(packing.weight_shape(rows, columns), DType.I8)
    return {_WEIGHT: integers, "scale": _scale(integers)}


def _grouped_product(x: Tensor, weight: Tensor, scale: Tensor, *, activation_bits: int) -> Tensor:
    rows = f.flatten_rows(x)
    return _with_rows_of(x, linear_grouped(rows, weight, scale, activation_bits=activation_bits))


def _with_rows_of(x: Tensor, product: Tensor) -> Tensor:
    return ops.reshape(product, shape=(*x.shape[:-1], product.shape[1]))


def _exact_logits(x: Tensor, upper: Tensor, lower: Tensor, scale: Tensor, **_: int) -> Tensor:
    exact = ops.full(shape=(x.shape[0],), dtype=DType.I32, value=1)
    return two_part_head(x, exact, upper, lower, scale)


def _halved_rows(ids: Tensor, upper: Tensor, lower: Tensor, scale: Tensor) -> Tensor:
    rows = embedding_halved(_flat(ids), upper, lower, scale)
    return ops.reshape(rows, shape=(*ids.shape, rows.shape[1]))


def _flat(ids: Tensor) -> Tensor:
    return ops.reshape(ids, shape=(ids.type.size,))


def _small(form: SmallForm, *, is_table: bool = False) -> Storage:
    """Integers of 4, 5, 6 or 12 bits. Logits always have activations of 16 bits, or 12."""
    attrs: Any = {"bits": form.bits, "minimum": form.minimum}

    def arrays(rows: int, columns: int) -> Mapping[str, TensorType]:
        return {
            name: TensorType(shape, DType.I8 if name in ("low", "high") else DType.F16)
            for name, shape in form.shapes(_padded(rows), columns).items()
        }

    def product(x: Tensor, *arrays: Tensor, activation_bits: int) -> Tensor:
        rows = f.flatten_rows(x)
        return _with_rows_of(
            x, linear_small(rows, *arrays, **attrs, activation_bits=activation_bits)
        )

    def logits(x: Tensor, *arrays: Tensor, **_: int) -> Tensor:
        return product(x, *arrays, activation_bits=16)

    def rows(ids: Tensor, *arrays: Tensor) -> Tensor:
        rows = embedding_small(_flat(ids), *arrays, **attrs)
        return ops.reshape(rows, shape=(*ids.shape, rows.shape[1]))

    suffix = "-min" if form.minimum else ""
    return Storage(
        name=f"int{form.bits}-g{form.columns}{suffix}",
        arrays=arrays,
        product=logits if is_table else product,
        rows=rows,
        routed=functools.partial(linear_routed_small, **attrs),
        logits=lambda x, _, *arrays: logits(x, *arrays),
        table=None if is_table else _small(form, is_table=True),
        form=form,
    )


def _only_products(*_: Tensor) -> Tensor:
    raise NotImplementedError("int8-g32: rows of a table are stored in halves")


def _only_tables(*_: Tensor, **__: int) -> Tensor:
    raise NotImplementedError("int8-g32 in halves: experts are not tables")


F32 = _plain("f32", DType.F32)
BF16 = _plain("bf16", DType.BF16)
INT8_G32_HALVES = Storage(
    name="int8-g32 in halves",
    arrays=_halves,
    product=_exact_logits,
    rows=_halved_rows,
    routed=_only_tables,
    logits=two_part_head,
    partial=frozenset({"lower"}),
)
INT8_G32 = Storage(
    name="int8-g32",
    arrays=_groups,
    product=_grouped_product,
    rows=_only_products,
    routed=linear_routed_grouped,
    logits=_only_products,
    table=INT8_G32_HALVES,
)


def _in_two_parts(form: SmallForm) -> Storage:
    """As `_small` for a table of integers whose upper part alone gives approximate logits."""
    whole = _small(form, is_table=True)
    return replace(
        whole,
        name=f"{whole.name} in two parts",
        logits=lambda x, exact, low, high, scale: two_part_head(x, exact, high, low, scale),
        partial=frozenset({"low"}),
    )


INT12_G32_TABLE = _in_two_parts(INT12)
INT12_G32 = replace(_small(INT12), table=INT12_G32_TABLE)
INT6_G16_TABLE = _in_two_parts(INT6)
INT6_G16 = replace(_small(INT6), table=INT6_G16_TABLE)
# Ways to store a matrix, by name; those of tables are not among them.
STORAGES: Mapping[str, Storage] = {
    storage.name: storage
    for storage in (
        F32,
        BF16,
        INT8_G32,
        INT12_G32,
        INT6_G16,
        *(_small(form) for form in FORMS if form not in (INT6, INT12)),
    )
}
