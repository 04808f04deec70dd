"""The gated delta rule (Yang et al., 2024, "Gated Delta Networks"): a matrix as memory, per head.

`T` are tokens, `H` heads, `K` the width of a key, `V` of a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.shapes import along_axes, at, flatten, narrow, permute

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor

__all__ = ["gated_delta_rule", "learned", "row_before"]

CHUNK = 64  # tokens that are learned by products of matrices


@composite()
def gated_delta_rule(
    states: Tensor,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    rate: Tensor,
    *,
    ring: int,
    every: bool,
) -> Tensor:
    """A ring of states with those after new tokens, and behind it what they read: see `learned`.

    states (ring + X, H * K * V): the state (H, K, V) after position p is row p mod `ring`; zeros
    before position 0. positions i32 (2,): of the first token, and of the last one that counts.
    query, key (T, H, K), value (T, H, V), log_decay, at most 0, and rate (T, H). Token by token

        S = exp(log_decay) S;  S = S + key (rate (value - S^T key))^T;  output = S^T query

    The state is written after each token if `every`, else after the last one that counts. Those
    behind it have a log_decay and a rate of 0, which changes nothing. The outputs (T, H, V) are at
    the start of the X rows. Computed by products for CHUNK tokens at a time; the kernel computes
    token by token.
    """
    tokens, size = key.shape[0], 1 if every else CHUNK
    first, last = narrow(positions, 0, 0, 1), narrow(positions, 0, 1, 2)
    width, rows = states.shape[1], ops.full_like(first, ring)
    row = row_before(states, first, ring=ring)
    state = ops.reshape(row, shape=(*key.shape[1:], value.shape[2]))
    outputs, after = [], []
    for start in range(0, tokens, size):
        stop = min(start + size, tokens)
        q, k, v, g, b = (narrow(x, 0, start, stop) for x in (query, key, value, log_decay, rate))
        output, state = _chunk(q, k, v, g, b, state)
        outputs.append(flatten(output))
        after.append(ops.reshape(state, shape=(1, width)))
    places = [ops.remainder(first + ahead, rows) for ahead in range(tokens)] if every else []
    places = places or [ops.remainder(last, rows)]
    kept = ops.concatenate(*after[-len(places) :], axis=0)
    places_tensor = ops.concatenate(*places, axis=0)
    updated = ops.scatter(states, places_tensor, kept, combine="replace")
    behind = flatten(narrow(states, 0, ring, states.shape[0]))
    if value.type.size < behind.shape[0]:
        outputs.append(narrow(behind, 0, value.type.size, behind.shape[0]))
    behind = ops.concatenate(*outputs, axis=0)
    behind = ops.reshape(behind, shape=(states.shape[0] - ring, width))
    return ops.concatenate(narrow(updated, 0, 0, ring), behind, axis=0)


def row_before(states: Tensor, position: Tensor, *, ring: int) -> Tensor:
    """The row (1, E) of the position before one, i32 (1,), in a ring; zeros before position 0."""
    place = ops.remainder(position + (ring - 1), ops.full_like(position, ring))
    row = ops.gather(states, place, axis=0)
    exists = ops.compare(position, ops.full_like(position, 0), direction="GT")
    exists = ops.broadcast(exists, shape=row.shape, axes=(0,))
    return ops.select(exists, row, ops.full_like(row, 0.0))


def learned(states: Tensor, value: Tensor, *, ring: int) -> Tensor:
    """The outputs (T, H, V) that `gated_delta_rule` left behind a ring, for values (T, H, V)."""
    behind = flatten(narrow(states, 0, ring, states.shape[0]))
    return ops.reshape(narrow(behind, 0, 0, value.type.size), shape=value.shape)


def _chunk(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, rate: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The outputs (C, H, V) of C tokens and the state (H, K, V) after them.

    With G the sums of log_decay up to each token and D_ij = exp(G_i - G_j) for j <= i, else 0:

        A = the part below the diagonal of rate (key key^T) D
        U = (I + A)^-1 rate (value - exp(G) key S)
        output = exp(G) query S + ((query key^T) D) U
        S = exp(G_C) S + (exp(G_C - G) key)^T U
    """
    count = key.shape[0]
    query, key, value = (permute(x, 1, 0, 2) for x in (query, key, value))
    rate = permute(rate, 1, 0)
    until = ops.dot_general(
        permute(log_decay, 1, 0), _constant(np.tri(count), log_decay),
        batch=((), ()), contract=((1,), (1,)), dtype=log_decay.dtype,
    )  # fmt: skip
    square = ops.full(shape=(key.shape[0], count, count), dtype=key.dtype, value=0.0)
    between = along_axes(until, square, (2,)) - along_axes(until, square, (1,))
    decay = ops.exponential(ops.minimum(between, square))
    overlap = _times_transposed(key, key) * decay * along_axes(rate, square, (2,))
    since = ops.exponential(until)
    wrong = (value - ops.matmul(_scaled(key, since), state)) * along_axes(rate, value, (2,))
    learned = ops.matmul(_inverse(overlap), wrong)
    seen = _times_transposed(query, key) * decay * _mask(np.tri(count), square)
    output = ops.matmul(_scaled(query, since), state) + ops.matmul(seen, learned)
    total = at(permute(until, 1, 0), count - 1)
    remaining = ops.exponential(along_axes(total, until, (1,)) - until)
    added = ops.dot_general(
        _scaled(key, remaining), learned,
        batch=((0,), (0,)), contract=((1,), (1,)), dtype=state.dtype,
    )  # fmt: skip
    kept = along_axes(ops.exponential(total), state, (1, 2))
    return permute(output, 1, 0, 2), state * kept + added


def _inverse(below: Tensor) -> Tensor:
    """(I + A)^-1 for the part A (H, C, C) below the diagonal of a tensor.

    Of a matrix of four blocks, of which X and Z are the inverses of those on the diagonal, the
    block below it is -Z A X: the inverse of blocks twice as large follows from three products.
    """
    count = below.shape[1]
    row, column = np.indices((count, count))
    inverse = _mask(np.eye(count), below)
    size = 1
    while size < count:
        is_left_below = (row // (2 * size) == column // (2 * size)) & (row // size > column // size)
        corner = below * _mask(is_left_below, below)
        inverse = inverse - ops.matmul(ops.matmul(inverse, corner), inverse)
        size *= 2
    return inverse


def _scaled(x: Tensor, factors: Tensor) -> Tensor:
    """The rows of x (H, C, K) times factors (H, C)."""
    return x * along_axes(factors, x, (2,))


def _times_transposed(x: Tensor, y: Tensor) -> Tensor:
    """x y^T for (H, C, K): (H, C, C)."""
    return ops.dot_general(x, y, batch=((0,), (0,)), contract=((2,), (2,)), dtype=x.dtype)


def _mask(values: NDArray[np.generic], like: Tensor) -> Tensor:
    """Numbers (C, C) for each head of a tensor (H, C, C)."""
    return along_axes(_constant(values, like), like, (0,))


def _constant(values: NDArray[np.generic], like: Tensor) -> Tensor:
    return ops.constant(value=values.astype(like.dtype.numpy))
