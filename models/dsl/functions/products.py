"""Products with weights and other matrices, and lookups in tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.shapes import along_last, at, flatten_rows, narrow
from hearthd.models.dsl.iree_faults.forms import concurrent_copies
from hearthd.models.dsl.ops.matmul import DECODE_ROWS, fills_tiles
from hearthd.models.dsl.threads import in_threads
from hearthd.models.dsl.types import NARROW, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs

__all__ = [
    "DECODE_ROWS",
    "PROJECTED_ROWS",
    "approximate_logits",
    "draft_logits",
    "embedding",
    "linear",
    "linear_bf16",
    "matmul",
    "matmul_transposed",
    "routed_linear",
    "times_weight",
]

# For at most this many rows, only weights are laid out for their kernels (see `ops.project`). With
# more, as in a prefill, attention is fast enough to pay for laying out keys and values as well.
PROJECTED_ROWS = 32


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for x (..., K), W (N, K) and b (N,): (..., N), in the dtype of x.

    For the dtypes of W see `times_weight`.
    """
    product = times_weight(x, weight)
    if bias is None:
        return product
    wide = bias if bias.dtype is x.dtype else ops.convert(bias, dtype=x.dtype)
    return product + along_last(wide, product)


@composite()
def times_weight(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T for x (..., K) and a weight W (N, K): (..., N), in the dtype of x.

    W has the dtype of x, or is bf16 beside an f32 x: see `linear_bf16` for what it rounds. Products
    of f16 and bf16 are summed in f32.
    """
    ops.require(
        x.type.rank >= 1 and weight.type.rank == 2,
        f"x (..., K) and a weight (N, K), got {x.type} and {weight.type}",
    )
    rows = flatten_rows(x)
    if x.dtype is DType.F32 and weight.dtype is DType.BF16:
        product = linear_bf16(rows, weight)
    elif x.dtype in NARROW:
        product = ops.convert(matmul_transposed(rows, weight, dtype=DType.F32), dtype=x.dtype)
    else:
        product = matmul_transposed(rows, weight, dtype=x.dtype)
    return ops.reshape(product, shape=(*x.shape[:-1], product.shape[1]))


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """x @ y for x (..., M, K) and y (..., K, N): (..., M, N). See `ops.matmul`."""
    return ops.matmul(x, y)


def matmul_transposed(x: Tensor, weight: Tensor, *, dtype: DType) -> Tensor:
    """(M, K) times a weight (N, K) transposed, summed in `dtype`: (M, N).

    A row's result does not depend on the other rows, nor up to DECODE_ROWS on their number.
    """
    if x.shape[0] == 1:
        # As two rows: one row has a kernel of its own, which adds in another order.
        product = matmul_transposed(concurrent_copies(x), weight, dtype=dtype)
        # The compiler may compute the row that is kept alone. Its kernel for that adds in the same
        # order where vectors cover the columns.
        if not fills_tiles(weight.shape[0]):
            product = ops.barrier(product)
        return narrow(product, 0, 0, 1)
    if x.shape[0] <= PROJECTED_ROWS:
        return ops.project(x, weight, dtype=dtype)
    return ops.dot_general(x, weight, batch=((), ()), contract=((1,), (1,)), dtype=dtype)


def linear_bf16(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T for x f32 (M, K) and W bf16 (N, K), summed in f32: (M, N).

    Many rows are rounded to bf16. Of a few, as in decoding, the rounding is kept as a second bf16
    part: reading W takes the time then, and both parts share it. The parts come from Veltkamp's
    splitting (Dekker, 1971), since a compiler may cancel a conversion with its inverse.
    """
    rows = x.shape[0]
    if rows > DECODE_ROWS:
        return matmul_transposed(ops.convert(x, dtype=DType.BF16), weight, dtype=x.dtype)
    scaled = x * float(2**16 + 1)
    high = scaled - (scaled - x)
    parts = ops.convert(ops.concatenate(high, x - high, axis=0), dtype=DType.BF16)
    products = matmul_transposed(parts, weight, dtype=x.dtype)
    return narrow(products, 0, 0, rows) + narrow(products, 0, rows, 2 * rows)


def by_expert(arrays: tuple[Array, ...], attrs: Attrs, product: Callable[..., Array]) -> Array:
    """As `routed_product` in NumPy: the rows of an expert together, so that it is read once.

    product  (rows (R, K), the arrays of an expert) -> (R, N)
    """
    x, chosen, *stored = arrays
    experts, each = attrs["experts"], len(chosen) // len(x)
    chosen = np.clip(chosen, 0, experts - 1)
    order = np.argsort(chosen, kind="stable")
    used, starts = np.unique(chosen[order], return_index=True)

    def of_expert(part: tuple[int, Array]) -> Array:
        expert, rows = part
        shares = (len(array) // experts for array in stored)
        matrices = (
            array[expert * share : (expert + 1) * share]
            for array, share in zip(stored, shares, strict=True)
        )
        return product(x[rows // each], *matrices)

    products = in_threads(of_expert, zip(used, np.split(order, starts[1:]), strict=True))
    result = np.empty((len(chosen), products[0].shape[1]), x.dtype)
    result[order] = np.concatenate(products)
    return result


def _floats_by_expert(arrays: tuple[Array, ...], attrs: Attrs) -> Array:
    return by_expert(arrays, attrs, lambda x, weight: x @ weight.astype(x.dtype).T)


@composite(in_numpy=_floats_by_expert)
def routed_linear(x: Tensor, chosen: Tensor, weight: Tensor, *, experts: int) -> Tensor:
    """Each row of x times the matrix (N, K) of each of its experts, transposed: (M, N).

    x       (M / C, K): each row has C experts
    chosen  the experts, i32 (M,): C of the first row, then C of the next one
    weight  (experts * N, K): the matrices of all experts, one after the other. It may be narrower
            than x, which is not rounded
    """

    def matrix(weight: Tensor) -> Tensor:
        return weight if weight.dtype is x.dtype else ops.convert(weight, dtype=x.dtype)

    return routed_product(x, chosen, (weight,), experts, matrix)


def routed_product(
    x: Tensor,
    chosen: Tensor,
    arrays: tuple[Tensor, ...],
    experts: int,
    matrix: Callable[..., Tensor],
) -> Tensor:
    """As `routed_linear`, with matrices that are stored as arrays (experts * ..., ...).

    matrix  (the arrays of one expert) -> its matrix (N, K), in the dtype of x
    """
    ops.require(
        x.type.rank == 2
        and chosen.type == TensorType((chosen.type.size,), DType.I32)
        and chosen.type.size % x.shape[0] == 0,
        f"rows (M / C, K) and experts i32 (M,), got {x.type} and {chosen.type}",
    )
    if chosen.shape[0] > x.shape[0]:
        each = (x.shape[0], chosen.shape[0] // x.shape[0], x.shape[1])
        x = ops.reshape(
            ops.broadcast(x, shape=each, axes=(0, 2)), shape=(chosen.shape[0], x.shape[1])
        )
    ops.require(
        experts >= 1 and all(array.shape[0] % experts == 0 for array in arrays),
        f"matrices of {experts} experts, got {[str(array.type) for array in arrays]}",
    )

    def expert_array(array: Tensor, expert: Tensor) -> Tensor:
        shape = (experts, array.shape[0] // experts, *array.shape[1:])
        return ops.gather(ops.reshape(array, shape=shape), expert, axis=0)

    def product(row: Tensor, expert: Tensor, *arrays: Tensor) -> Tensor:
        weight = matrix(*(expert_array(array, expert) for array in arrays))
        return ops.dot_general(row, weight, batch=((), ()), contract=((0,), (1,)), dtype=row.dtype)

    width = product(at(x, 0), at(chosen, 0), *arrays).shape[0]
    return ops.scan(
        ops.full(shape=(width,), dtype=x.dtype, value=0.0),
        x,
        chosen,
        *arrays,
        body=lambda _, *inputs: product(*inputs),
        sequences=2,
        steps=x.shape[0],
        reverse=False,
        keep="all",
    )


@composite()
def approximate_logits(logits: Tensor, margin: Tensor) -> Tensor:
    """The logits (N, V), unchanged. A program may approximate the smaller ones.

    A program may approximate logits that are further below the largest one of their row than its
    `margin` in nats, i32 (N,). With 2^20 or more it approximates none.
    """
    ops.require(margin.type == TensorType((logits.shape[0],), DType.I32), "margins i32 (N,)")
    return logits


@composite()
def draft_logits(logits: Tensor) -> Tensor:
    """The logits of a draft (1, V), unchanged. A program may compute the likely ones alone.

    A draft is the largest logit, with its probability. Other logits may be very low.
    """
    ops.require(logits.type.rank == 2 and logits.shape[0] == 1, f"logits (1, V), got {logits.type}")
    return logits


@composite()
def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Rows of a table (V, E) at i32 ids: f32 (..., E), or f64 for an f64 table.

    A row that is read twice adds both gradients.
    """
    rows = ops.gather(table, ids, axis=0)
    return rows if table.dtype in (DType.F32, DType.F64) else ops.convert(rows, dtype=DType.F32)
