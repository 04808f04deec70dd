"""What models are written in: plain functions over ops.

They have no shape rule, value or gradient of their own, so there is nothing to keep in step.
`B` is a batch, `T` are query tokens, `S` are key tokens, `H` query heads, `G` key/value heads,
`D` the width of a head.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from models.dsl import ops
from models.dsl.types import DType, TypeRuleError

if TYPE_CHECKING:
    from models.dsl.graph import Tensor

# A decode reads one token of each of up to so many sequences. In so few rows twice the arithmetic
# is cheap, since reading a large matrix takes the time; and all batch sizes round alike.
DECODE_ROWS = 8
# Up to so many rows a step only lays out weights for its kernels (see `ops.project`). With more,
# as in a prefill, attention is fast enough to pay for laying out keys and values as well.
PROJECTED_ROWS = 32

# --- shapes


def flatten_rows(x: Tensor) -> Tensor:
    """(..., N) -> (rows, N)."""
    return ops.reshape(x, shape=(math.prod(x.shape[:-1]), x.shape[-1]))


def along_last(vector: Tensor, like: Tensor) -> Tensor:
    """A vector (N,) repeated to the shape (..., N) of another tensor."""
    return ops.broadcast(vector, shape=like.shape, axes=(like.type.rank - 1,))


def along_rows(column: Tensor, like: Tensor) -> Tensor:
    """A tensor (...) repeated along a new last axis, to the shape (..., N) of another tensor."""
    return ops.broadcast(column, shape=like.shape, axes=tuple(range(like.type.rank - 1)))


def trailing(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Broadcast as NumPy does: axes are aligned at the end, extents of 1 are repeated."""
    axes = tuple(range(len(shape) - x.type.rank, len(shape)))
    return ops.broadcast(x, shape=shape, axes=axes)


def narrow(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """x[..., start:stop, ...] along one axis."""
    bounds = [(0, extent, 1) for extent in x.shape]
    bounds[axis] = (start, stop, 1)
    return ops.slice_(x, bounds=tuple(bounds))


# --- layers


def softmax(x: Tensor) -> Tensor:
    """exp(x - max) / sum, over the last axis.

    A row that is -inf throughout gives zeros: nothing was there to choose from.
    """
    last = (x.type.rank - 1,)
    largest = ops.reduce_max(x, axes=last)
    finite = ops.maximum(largest, ops.full_like(largest, _lowest(x.dtype)))
    exponentials = ops.exponential(x - along_rows(finite, x))
    total = ops.reduce_sum(exponentials, axes=last)
    some = ops.maximum(total, ops.full_like(total, _tiny(x.dtype)))
    return exponentials / along_rows(some, x)


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis (Zhang and Sennrich, 2019).

    A root and a division round alike on every machine; rsqrt is an estimate where it is fast.
    """
    x = _apart(x)
    mean_square = ops.reduce_sum(x * x, axes=(x.type.rank - 1,)) * (1.0 / x.shape[-1])
    return _apart(x / along_rows(ops.sqrt(mean_square + eps), x) * along_last(weight, x))


def _apart(x: Tensor) -> Tensor:
    """x, in a decode behind a barrier: a sequence's rows must not depend on the batch size."""
    return ops.barrier(x) if x.shape[0] <= DECODE_ROWS else x


def gelu_tanh(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016)."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
    return x * 0.5 * (ops.tanh(inner) + 1.0)


def silu(x: Tensor) -> Tensor:
    """x / (1 + exp(-x)) (Elfwing et al., 2017)."""
    # exp(80) is finite, and below -80 the result is as good as zero.
    bounded = ops.maximum(x, ops.full_like(x, -80.0))
    return x / (ops.exponential(ops.negate(bounded)) + 1.0)


def linear(x: Tensor, weight: Tensor, scale: Tensor | None = None) -> Tensor:
    """x W^T for x f32 (..., K) and W (N, K) in f32, bf16 or i8: f32 (..., N).

    See `linear_bf16` and `linear_int8` for what they round.
    """
    rows = flatten_rows(x)
    if scale is not None:
        product = linear_int8(rows, weight, scale)
    elif weight.dtype is DType.BF16:
        product = linear_bf16(rows, weight)
    else:
        product = matmul_transposed(rows, weight, dtype=x.dtype)
    return ops.reshape(product, shape=(*x.shape[:-1], weight.shape[0]))


def matmul_transposed(x: Tensor, weight: Tensor, *, dtype: DType) -> Tensor:
    """(M, K) times a weight (N, K) transposed, summed in `dtype`: (M, N).

    A row's result does not depend on the other rows, nor up to DECODE_ROWS on their number.
    """
    if x.shape[0] == 1 and dtype.is_float:
        # As two rows: one row has a kernel of its own, which adds in another order.
        return narrow(
            matmul_transposed(ops.concatenate(x, x, axis=0), weight, dtype=dtype), 0, 0, 1
        )
    if x.shape[0] == 1:
        row = ops.reshape(x, shape=(x.shape[1],))
        product = ops.project(row, weight, dtype=dtype)
        return ops.reshape(product, shape=(1, weight.shape[0]))
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


def linear_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """x W^T with integer products: x f32 (M, K), W i8 (N, K), scale f32 (N,) -> f32 (M, N).

    Each row of x is quantised to 127 steps of its own largest magnitude; sums are exact in i32.
    """
    largest = ops.reduce_max(ops.absolute(x), axes=(1,))
    step = ops.maximum(largest, ops.full_like(largest, _tiny(x.dtype))) * (1.0 / 127.0)
    quantised = ops.convert(ops.round_nearest_even(x / along_rows(step, x)), dtype=DType.I8)
    sums = ops.convert(matmul_transposed(quantised, weight, dtype=DType.I32), dtype=x.dtype)
    return sums * along_rows(step, sums) * along_last(scale, sums)


def embedding(ids: Tensor, table: Tensor, scale: Tensor | None = None) -> Tensor:
    """Rows of a table (V, E) in f32, bf16 or i8 (times their scale (V,)): f32 (..., E)."""
    rows = ops.gather(table, ids, axis=0)
    if table.dtype is not DType.F32:
        rows = ops.convert(rows, dtype=DType.F32)
    if scale is None:
        return rows
    return rows * along_rows(ops.gather(scale, ids, axis=0), rows)


# --- positions


def rope_table(
    positions: Tensor, head_dim: int, *, base: float, factor: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position * base^(-2i/D) / factor, each f32 (N, D/2), for i32 (N,).

    Su et al., 2021; `factor` is the linear scaling of long-context models.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    frequencies = ops.constant(value=(base**-exponents / factor).astype(np.float32))
    shape = (positions.shape[0], head_dim // 2)
    angles = ops.broadcast(
        ops.convert(positions, dtype=DType.F32), shape=shape, axes=(0,)
    ) * ops.broadcast(frequencies, shape=shape, axes=(1,))
    return ops.cosine(angles), ops.sine(angles)


def rope(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate x (N, H, D) by the table (N, D/2): pairs are (x_i, x_{i + D/2}), "split half"."""
    half = x.shape[-1] // 2
    first, second = narrow(x, 2, 0, half), narrow(x, 2, half, 2 * half)
    cos = ops.broadcast(cosine, shape=first.shape, axes=(0, 2))
    sin = ops.broadcast(sine, shape=first.shape, axes=(0, 2))
    return ops.concatenate(first * cos - second * sin, second * cos + first * sin, axis=2)


# --- attention


def visible(query_positions: Tensor, key_positions: Tensor, window: int | None) -> Tensor:
    """Which keys a query sees: bool (T, S) for i32 positions (T,) and (S,).

    Causal: a key is seen by queries at its own position and after. With a window of n, by the
    first n of them only. A key at a negative position is absent and never seen.
    """
    shape = (query_positions.shape[0], key_positions.shape[0])
    query = ops.broadcast(query_positions, shape=shape, axes=(0,))
    key = ops.broadcast(key_positions, shape=shape, axes=(1,))
    seen = ops.logical_and(
        ops.compare(key, query, direction="LE"),
        ops.compare(key, ops.full_like(key, 0), direction="GE"),
    )
    if window is None:
        return seen
    return ops.logical_and(
        seen, ops.compare(query - key, ops.full_like(key, window), direction="LT")
    )


def causal(queries: int, keys: int, *, offset: int = 0, window: int | None = None) -> Tensor:
    """`visible` for keys at 0, 1, ... and queries at offset, offset + 1, ...: bool (T, S)."""
    query_positions = ops.iota(shape=(queries,), axis=0, dtype=DType.I32) + offset
    return visible(query_positions, ops.iota(shape=(keys,), axis=0, dtype=DType.I32), window)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    seen: Tensor | None = None,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """softmax(scale * q k^T + mask) v (Vaswani et al., 2017), grouped-query (Ainslie et al., 2023).

    query  (B, T, H, D)
    key    (B, S, G, D), value (B, S, G, E); H is a multiple of G, query head h uses h // (H / G)
    seen   bool, broadcast to (B, H, T, S) from the end: other keys are left out
    mask   added to the scores, broadcast likewise, together with `seen`
    scale  D^-0.5 unless given (0.0 is 0.0)

    Returns (B, T, H, E). A query that sees no key gets zeros.
    """
    batch, queries, heads, width = query.shape
    keys, groups = key.shape[1], key.shape[2]
    if heads % groups:
        raise TypeRuleError(f"attention: {heads} query heads do not share {groups} key heads")
    each = heads // groups
    # The heads of a group are more rows of one product, so keys are never repeated. With tokens
    # outermost among the rows, a model with one group moves no data at all.
    grouped = ops.reshape(query, shape=(batch, queries, groups, each, width))
    rows = ops.reshape(
        ops.transpose(grouped, order=(0, 2, 1, 3, 4)),
        shape=(batch, groups, queries * each, width),
    )
    scores = ops.dot_general(
        rows * (width**-0.5 if scale is None else scale),
        key,
        batch=((0, 1), (0, 2)),
        contract=((3,), (3,)),
        dtype=query.dtype,
    )
    by_token = (batch, groups, queries, each, keys)
    scores = ops.reshape(scores, shape=by_token)
    if mask is not None:
        scores = scores + _per_score(mask, (batch, heads, queries, keys), by_token)
    if seen is not None:
        chosen = _per_score(seen, (batch, heads, queries, keys), by_token)
        scores = ops.select(chosen, scores, ops.full_like(scores, -math.inf))
    weights = ops.reshape(softmax(scores), shape=(batch, groups, queries * each, keys))
    mixed = ops.dot_general(
        weights, value, batch=((0, 1), (0, 2)), contract=((3,), (1,)), dtype=query.dtype
    )
    mixed = ops.reshape(mixed, shape=(batch, groups, queries, each, value.shape[3]))
    return ops.reshape(
        ops.transpose(mixed, order=(0, 2, 1, 3, 4)),
        shape=(batch, queries, heads, value.shape[3]),
    )


def _per_score(x: Tensor, shape: tuple[int, ...], by_token: tuple[int, ...]) -> Tensor:
    """A mask that broadcasts to (B, H, T, S), in the scores' layout (B, G, T, H / G, S)."""
    if x.type.rank <= 2 or all(extent == 1 for extent in x.shape[:-2]):
        flat = ops.reshape(x, shape=x.shape[-2:])
        axes = (2, 4)[2 - flat.type.rank :]
        return ops.broadcast(flat, shape=by_token, axes=axes)
    batch, groups, queries, each, keys = by_token
    grouped = ops.reshape(trailing(x, shape), shape=(batch, groups, each, queries, keys))
    return ops.transpose(grouped, order=(0, 1, 3, 2, 4))


def _lowest(dtype: DType) -> float:
    return float(_limits(dtype).min)


def _tiny(dtype: DType) -> float:
    return float(_limits(dtype).tiny)


def _limits(dtype: DType) -> Any:
    """Like np.finfo, which does not know bf16."""
    return ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
