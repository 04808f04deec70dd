"""Products, of which most are with weights, and rows out of a table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from models.dsl import ops
from models.dsl.functions.shapes import along_last, flatten_rows, narrow
from models.dsl.types import DType

if TYPE_CHECKING:
    from models.dsl.graph import Tensor

__all__ = [
    "DECODE_ROWS",
    "LOGIT_MARGIN",
    "PROJECTED_ROWS",
    "embedding",
    "linear",
    "linear_bf16",
    "logits",
    "matmul",
    "matmul_transposed",
]

# A decode reads one token of each of up to so many sequences. In so few rows twice the arithmetic
# is cheap, since reading a large matrix takes the time; and all batch sizes round alike.
DECODE_ROWS = 8
# Up to so many rows a step only lays out weights for its kernels (see `ops.project`). With more,
# as in a prefill, attention is fast enough to pay for laying out keys and values as well.
PROJECTED_ROWS = 32
# So far below the best, in nats, a logit may be coarse (see `logits`). With 10, Gemma 3's
# distributions on texts move by a KL divergence of 0.0015, with 12 by 0.0004, and a step computes
# 4 or 9 % of the outputs again.
LOGIT_MARGIN = 11.0


def linear(
    x: Tensor, weight: Tensor, scale: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """x W^T + b for x (..., K), W (N, K) and b (N,): (..., N), in the dtype of x.

    An f32 x may have weights of f32 or bf16, see `linear_bf16` for what it rounds, or weights in
    groups with an f16 scale for each, see `ops.linear_grouped`. Otherwise W is of x's dtype; f16
    and bf16 are summed in f32.
    """
    rows = flatten_rows(x)
    if scale is not None:
        product = ops.linear_grouped(rows, weight, scale)
    elif x.dtype is DType.F32 and weight.dtype is DType.BF16:
        product = linear_bf16(rows, weight)
    elif x.dtype in (DType.F16, DType.BF16):
        product = ops.convert(matmul_transposed(rows, weight, dtype=DType.F32), dtype=x.dtype)
    else:
        product = matmul_transposed(rows, weight, dtype=x.dtype)
    if bias is not None:
        wide = bias if bias.dtype is x.dtype else ops.convert(bias, dtype=x.dtype)
        product = product + along_last(wide, product)
    return ops.reshape(product, shape=(*x.shape[:-1], product.shape[1]))


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """(..., M, K) times (..., K, N), for each index of the leading axes: (..., M, N).

    Leading axes are aligned at the end. Those that both have are equal; those that one has alone
    stay in front: (B, M, K) times (K, N) is (B, M, N).
    """
    shared = min(x.type.rank, y.type.rank) - 2
    own_x, own_y = x.type.rank - 2 - shared, y.type.rank - 2 - shared
    product = ops.dot_general(
        x,
        y,
        batch=(tuple(range(own_x, own_x + shared)), tuple(range(own_y, own_y + shared))),
        contract=((x.type.rank - 1,), (y.type.rank - 2,)),
        dtype=x.dtype,
    )
    # Its axes: shared, those of x alone, M, those of y alone, N. One of the two has none.
    rows = shared + own_x
    alone = (*range(shared, rows), *range(rows + 1, rows + 1 + own_y))
    order = (*alone, *range(shared), rows, rows + 1 + own_y)
    in_order = order == tuple(range(len(order)))
    return product if in_order else ops.transpose(product, order=order)


def matmul_transposed(x: Tensor, weight: Tensor, *, dtype: DType) -> Tensor:
    """(M, K) times a weight (N, K) transposed, summed in `dtype`: (M, N).

    A row's result does not depend on the other rows, nor up to DECODE_ROWS on their number.
    """
    if x.shape[0] == 1:
        # As two rows: one row has a kernel of its own, which adds in another order.
        return narrow(
            matmul_transposed(ops.concatenate(x, x, axis=0), weight, dtype=dtype), 0, 0, 1
        )
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


def logits(
    x: Tensor, upper: Tensor, lower: Tensor, scale: Tensor, exact: Tensor | None = None
) -> Tensor:
    """x W^T for x f32 (M, K) and a matrix in groups and in halves (N, K), where it matters: (M, N).

    Products that are more than LOGIT_MARGIN below the largest of their row are coarse, unless they
    share a block of sixteen with a larger one; so most of the lower halves is never read. In rows
    for which `exact`, i32 (M,), is not 0, none is coarse; nor in any row without it.
    """
    if exact is None:
        exact = ops.full(shape=(x.shape[0],), dtype=DType.I32, value=1)
    coarse = ops.linear_upper(x, upper, scale, exact)
    largest = ops.reduce_max(coarse, axes=(1,))
    asked = ops.compare(exact, ops.full_like(exact, 0), direction="NE")
    everything = ops.full_like(largest, -math.inf)
    threshold = ops.select(asked, everything, largest + -LOGIT_MARGIN)
    return ops.linear_refined(x, upper, lower, scale, coarse, threshold)


def embedding(
    ids: Tensor, table: Tensor, scale: Tensor | None = None, lower: Tensor | None = None
) -> Tensor:
    """Rows of a table (V, E) in f32 or bf16: f32 (..., E).

    Of an f64 table they are f64. A row that is read twice adds both gradients. A table in groups is
    in halves, and has an f16 scale for each: see `ops.embedding_halved`.
    """
    if scale is not None and lower is not None:
        flat = ops.reshape(ids, shape=(ids.type.size,))
        rows = ops.embedding_halved(flat, table, lower, scale)
        return ops.reshape(rows, shape=(*ids.shape, rows.shape[1]))
    rows = ops.gather(table, ids, axis=0)
    return rows if table.dtype in (DType.F32, DType.F64) else ops.convert(rows, dtype=DType.F32)
