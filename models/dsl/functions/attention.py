"""Rotary positions, masks and attention.

`B` is a batch, `T` are query tokens, `S` are key tokens, `H` query heads, `G` key/value heads,
`D` the width of a head.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.activations import soft_cap, softmax
from hearthd.models.dsl.functions.shapes import narrow, trailing
from hearthd.models.dsl.functions.wide import in_f32
from hearthd.models.dsl.ops.creation import MAX_CONSTANT_SIZE
from hearthd.models.dsl.types import DType, TypeRuleError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor

__all__ = [
    "cached_attention",
    "causal",
    "consecutive",
    "full_attention",
    "rope",
    "rope_table",
    "scaled_dot_product_attention",
    "split_heads",
    "visible",
]

# The bits of a rotary angle's growth below its unit of 2^-32 turns.
_PART_BITS = 14


def rope_table(
    positions: Tensor, head_dim: int, *, base: float, factor: float | Sequence[float] = 1.0
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position * base^(-2i/D) / factor, each f32 (N, D/2), for i32 (N,).

    Su et al., 2021; `factor` is the scaling of long-context models: one number, or D/2 of them.
    Positions may also be i32 (N, D/2), one for each column.
    Within 2e-7 of the exact values for positions from 0 to 2^18 - 1.

    Only the fraction of a turn of a position's angle counts, and f32 has no digits left for it in a
    large angle. So angles are i32, in units of 2^-32 turns, where whole turns wrap around.
    """
    ops.require(head_dim % 2 == 0, f"an even head_dim, got {head_dim}", "rope_table")
    most = 2 * MAX_CONSTANT_SIZE
    ops.require(head_dim <= most, f"a head_dim of at most {most}, got {head_dim}", "rope_table")
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    units = np.remainder(base**-exponents / np.asarray(factor) / (2 * math.pi), 1.0) * 2.0**32
    integers, part = np.floor(units), np.floor(np.remainder(units, 1.0) * 2.0**_PART_BITS)
    shape = (positions.shape[0], head_dim // 2)

    def step(values: NDArray[np.float64]) -> Tensor:
        """The difference of the angles of neighboring positions, as i32 that wraps around."""
        fixed = ops.constant(value=values.astype(np.uint32).view(np.int32))
        return ops.broadcast(fixed, shape=shape, axes=(1,))

    position = positions
    if positions.type.rank == 1:
        position = ops.broadcast(positions, shape=shape, axes=(0,))
    small = position * step(part)
    angle = position * step(integers) + ops.shift_right(small, ops.full_like(small, _PART_BITS))
    return _cosine_and_sine(angle)


def _cosine_and_sine(angle: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine and sine of angles i32, in units of 2^-32 turns.

    An angle is split into the nearest quarter turn and a rest; both functions are computed of the
    rest.
    """
    quarter = ops.shift_right(angle + 2**29, ops.full_like(angle, 30))  # 0, 1, 2 or 3
    rest = angle - ops.shift_left(quarter, ops.full_like(angle, 30))
    radians = ops.convert(rest, dtype=DType.F32) * (2 * math.pi / 2**32)
    cosine, sine = ops.cosine(radians), ops.sine(radians)
    is_odd = _has_bit(quarter, 1)
    cosine, sine = ops.select(is_odd, sine, cosine), ops.select(is_odd, cosine, sine)
    return (
        ops.select(_has_bit(quarter + 1, 2), -cosine, cosine),
        ops.select(_has_bit(quarter, 2), -sine, sine),
    )


def _has_bit(x: Tensor, bit: int) -> Tensor:
    masked = ops.bitwise_and(x, ops.full_like(x, bit))
    return ops.compare(masked, ops.full_like(x, 0), direction="NE")


@composite()
def rope(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate the first T columns of x (N, H, D) by the table (N, T/2), "split half".

    Pairs are (x_i, x_{i + T/2}).
    """
    half = cosine.shape[-1] if cosine.type.rank else 0
    ops.require(
        x.type.rank == 3 and 0 < 2 * half <= x.shape[2],
        f"(N, H, D) and a table of at most D / 2 columns, got {x.type} and {cosine.type}",
    )
    first, second = narrow(x, 2, 0, half), narrow(x, 2, half, 2 * half)
    rest = [narrow(x, 2, 2 * half, x.shape[2])] if 2 * half < x.shape[2] else []
    cos = ops.broadcast(cosine, shape=first.shape, axes=(0, 2))
    sin = ops.broadcast(sine, shape=first.shape, axes=(0, 2))
    turned = first * cos - second * sin, second * cos + first * sin
    return ops.concatenate(*turned, *rest, axis=2)


def visible(
    query_positions: Tensor,
    key_positions: Tensor,
    window: int | None,
    *,
    end: Tensor | None = None,
) -> Tensor:
    """Which keys a query sees: bool (T, S) for i32 positions (T,) and (S,).

    A key is seen by queries at its own position and after, and by all if its position is below
    `end`, i32 (1,). With a window of n, a query sees no key that is n or more positions before it.
    A key at a negative position is absent and never seen.
    """
    shape = (query_positions.shape[0], key_positions.shape[0])
    query = ops.broadcast(query_positions, shape=shape, axes=(0,))
    key = ops.broadcast(key_positions, shape=shape, axes=(1,))
    latest = query if end is None else ops.maximum(query, trailing(end, shape) + -1)
    seen = ops.compare(key, ops.full_like(key, 0), direction="GE")
    seen = ops.logical_and(ops.compare(key, latest, direction="LE"), seen)
    if window is None:
        return seen
    return ops.logical_and(
        seen, ops.compare(query - key, ops.full_like(key, window), direction="LT")
    )


def causal(queries: int, keys: int, *, offset: int = 0, window: int | None = None) -> Tensor:
    """`visible` for keys at 0, 1, ... and queries at offset, offset + 1, ...: bool (T, S)."""
    query_positions = ops.iota(shape=(queries,), axis=0, dtype=DType.I32) + offset
    return visible(query_positions, ops.iota(shape=(keys,), axis=0, dtype=DType.I32), window)


@in_f32
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    seen: Tensor | None = None,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    scale: float | None = None,
    cap: float | None = None,
) -> Tensor:
    """softmax(scale * q k^T + mask) v (Vaswani et al., 2017), grouped-query (Ainslie et al., 2023).

    query  (B, T, H, D)
    key    (B, S, G, D), value (B, S, G, E); H is a multiple of G, query head h uses h // (H / G)
    seen   bool, broadcast to (B, H, T, S) from the end: other keys are left out
    mask   added to the scores, broadcast likewise, together with `seen`
    sinks  (H,): a score of each head that takes part in its softmax and has no value
    scale  D^-0.5 unless given (0.0 is 0.0)
    cap    scores go through `soft_cap` before the mask is added

    Returns (B, T, H, E). A query that sees no key gets zeros.
    """
    _require_heads(query, key, value)
    batch, queries, heads, width = query.shape
    _, keys, groups, _ = key.shape
    heads_per_group = heads // groups
    scores = ops.dot_general(
        _rows_by_group(query, groups) * (width**-0.5 if scale is None else scale),
        key,
        batch=((0, 1), (0, 2)),
        contract=((3,), (3,)),
        dtype=query.dtype,
    )
    by_token = (batch, groups, queries, heads_per_group, keys)
    scores = ops.reshape(scores, shape=by_token)
    scores = scores if cap is None else soft_cap(scores, cap=cap)
    if mask is not None:
        scores = scores + _per_score(mask, (batch, heads, queries, keys), by_token)
    if seen is not None:
        chosen = _per_score(seen, (batch, heads, queries, keys), by_token)
        scores = ops.select(chosen, scores, ops.full_like(scores, -math.inf))
    weights = _softmax(scores, sinks)
    weights = ops.reshape(weights, shape=(batch, groups, queries * heads_per_group, keys))
    mixed = ops.dot_general(
        weights, value, batch=((0, 1), (0, 2)), contract=((3,), (1,)), dtype=query.dtype
    )
    mixed = ops.reshape(mixed, shape=(batch, groups, queries, heads_per_group, value.shape[3]))
    mixed = ops.transpose(mixed, order=(0, 2, 1, 3, 4))
    return ops.reshape(mixed, shape=(batch, queries, heads, value.shape[3]))


def _softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """The softmax of scores (B, G, T, H / G, S) and of one more score of each head, (H,)."""
    if sinks is None:
        return softmax(scores)
    batch, groups, queries, heads_per_group, keys = scores.shape
    ops.require(sinks.shape == (groups * heads_per_group,), f"sinks of all heads, got {sinks.type}")
    column = ops.broadcast(
        ops.reshape(sinks, shape=(groups, heads_per_group)),
        shape=(batch, groups, queries, heads_per_group, 1),
        axes=(1, 3),
    )
    return narrow(softmax(ops.concatenate(scores, column, axis=4)), 4, 0, keys)


def _require_heads(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.type.rank != 4:
            raise TypeRuleError(f"attention: expected {name} of rank 4, got {tensor.type}")
    heads, groups = query.shape[2], key.shape[2]
    if heads % groups:
        raise TypeRuleError(f"attention: {heads} query heads do not share {groups} key heads")


@composite()
def cached_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start: Tensor,
    sinks: Tensor | None = None,
    *,
    keys: int,
    window: int | None = None,
    scale: float,
    cap: float | None = None,
    alone: bool = False,
) -> Tensor:
    """Attention over the KV cache of one sequence, which is a ring of rows.

    query   (T, H, D): tokens at positions start, start + 1, ...
    key     (R, G * D), value likewise: position p lies in row p mod R, the tokens' own included;
            their dtype may be narrower than the query's
    start   i32 (1,): a token sees no later one. Or i32 (2,), then the position after a block, which
            begins at `start`: the tokens of the block see each other
    sinks   (H,): see `scaled_dot_product_attention`
    keys    all positions are below it
    window  keys that a token sees, itself included; None for all
    cap     scores go through `soft_cap`; None: they do not
    alone   whether the result of a token has the bits that it has without the others

    Returns (T, H, D). Each query sees at most R - T + 1 keys, or there are at most R positions.
    """

    return attend_ring(
        query,
        lambda rows: (_heads_of(key, rows, query), _heads_of(value, rows, query)),
        start,
        sinks,
        rows=key.shape[0],
        keys=keys,
        window=window,
        scale=scale,
        cap=cap,
        alone=alone,
    )


def attend_ring(
    query: Tensor,
    read: Callable[[int], tuple[Tensor, Tensor]],
    start: Tensor,
    sinks: Tensor | None,
    *,
    rows: int,
    keys: int,
    window: int | None,
    scale: float,
    cap: float | None,
    alone: bool,
) -> Tensor:
    """`cached_attention` over a ring of R rows.

    `read` gives the keys and the values of its first rows, (rows, G, D) of the query's dtype.
    """
    looked_at = min(keys, rows)  # of fewer positions than rows, p lies in row p

    def attended(query: Tensor, start: Tensor) -> Tensor:
        """The result of consecutive tokens."""
        tokens = query.shape[0]
        end = narrow(start, 0, 1, 2) if start.shape == (2,) else None
        start = narrow(start, 0, 0, 1)
        positions = consecutive(start, tokens)
        # Row r holds the newest position p with p mod R == r, negative if there is none yet. A row
        # that holds a later position, of other tokens, counts as p - R, which is out of sight.
        newest = trailing(start + (tokens - 1), (looked_at,))
        row = ops.iota(shape=(looked_at,), axis=0, dtype=DType.I32)
        age = ops.remainder(newest - row + rows, ops.full_like(row, rows))
        seen = visible(positions, newest - age, window, end=end)
        batch = (ops.reshape(x, shape=(1, *x.shape)) for x in (query, *read(looked_at)))
        mixed = scaled_dot_product_attention(*batch, seen=seen, sinks=sinks, scale=scale, cap=cap)
        return ops.reshape(mixed, shape=query.shape)

    tokens = query.shape[0]
    if not alone or tokens == 1:
        return attended(query, start)
    parts = (attended(narrow(query, 0, i, i + 1), start + i) for i in range(tokens))
    return ops.concatenate(*parts, axis=0)


@composite()
def full_attention(
    query: Tensor, key: Tensor, value: Tensor, count: Tensor | None = None, *, scale: float
) -> Tensor:
    """Attention of each token to every row of keys and values, (T, H, D).

    query  (T, H, D)
    key    (R, G * D), value likewise: their dtype may be narrower than the query's
    count  i32 (1,): how many rows there are, from 1; the others are padding. None: R
    """
    rows = key.shape[0]
    seen = None
    if count is not None:
        row = ops.iota(shape=(rows,), axis=0, dtype=DType.I32)
        seen = ops.compare(row, trailing(count, (rows,)), direction="LT")
    heads = (query, _heads_of(key, rows, query), _heads_of(value, rows, query))
    batch = (ops.reshape(x, shape=(1, *x.shape)) for x in heads)
    mixed = scaled_dot_product_attention(*batch, seen=seen, scale=scale)
    return ops.reshape(mixed, shape=query.shape)


def _heads_of(cache: Tensor, rows: int, query: Tensor) -> Tensor:
    """The first rows of a cache (R, G * D) as the query (T, H, D) has its heads: (rows, G, D)."""
    narrowed = narrow(cache, 0, 0, rows)
    wide = narrowed.dtype is query.dtype
    converted = narrowed if wide else ops.convert(narrowed, dtype=query.dtype)
    return split_heads(converted, query.shape[2])


def consecutive(start: Tensor, count: int) -> Tensor:
    """start, start + 1, ...: i32 (1,) -> i32 (count,)."""
    return trailing(start, (count,)) + ops.iota(shape=(count,), axis=0, dtype=DType.I32)


def split_heads(x: Tensor, width: int) -> Tensor:
    """(N, heads * width) -> (N, heads, width)."""
    return ops.reshape(x, shape=(x.shape[0], x.shape[1] // width, width))


def _rows_by_group(query: Tensor, groups: int) -> Tensor:
    """(B, T, H, D) as (B, G, T * H / G, D).

    The heads of a group are more rows of one product, so keys are never repeated. With tokens
    outermost among the rows, a model with one group moves no data at all.
    """
    batch, queries, heads, width = query.shape
    grouped = ops.reshape(query, shape=(batch, queries, groups, heads // groups, width))
    return ops.reshape(
        ops.transpose(grouped, order=(0, 2, 1, 3, 4)),
        shape=(batch, groups, queries * heads // groups, width),
    )


def _per_score(x: Tensor, shape: tuple[int, ...], by_token: tuple[int, ...]) -> Tensor:
    """A mask that broadcasts to (B, H, T, S), in the scores' layout (B, G, T, H / G, S)."""
    if x.type.rank <= 2 or all(extent == 1 for extent in x.shape[:-2]):
        flat = ops.reshape(x, shape=x.shape[-2:])
        axes = (2, 4)[2 - flat.type.rank :]
        return ops.broadcast(flat, shape=by_token, axes=axes)
    batch, groups, queries, heads_per_group, keys = by_token
    grouped = ops.reshape(trailing(x, shape), shape=(batch, groups, heads_per_group, queries, keys))
    return ops.transpose(grouped, order=(0, 1, 3, 2, 4))
