"""The gated delta rule (Yang et al., 2024, "Gated Delta Networks"): a matrix as memory, per head.

`T` are tokens, `H` heads, `K` the width of a key, `V` of a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.shapes import along_axes, permute
from hearthd.models.dsl.functions.state_rings import (
    decay_between,
    learned_state,
    mask,
    recurrence,
    scaled,
    sums_until,
    times_transposed,
)

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["gated_delta_rule"]


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
    shape = (*key.shape[1:], value.shape[2])
    rows = (query, key, value, log_decay, rate)
    return recurrence(states, positions, rows, _chunk, shape=shape, ring=ring, every=every)


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
    until = sums_until(permute(log_decay, 1, 0))
    square = ops.full(shape=(key.shape[0], count, count), dtype=key.dtype, value=0.0)
    decay = decay_between(until)
    overlap = times_transposed(key, key) * decay * along_axes(rate, square, (2,))
    since = ops.exponential(until)
    wrong = (value - ops.matmul(scaled(key, since), state)) * along_axes(rate, value, (2,))
    learned = ops.matmul(_inverse(overlap), wrong)
    seen = times_transposed(query, key) * decay * mask(np.tri(count), square)
    output = ops.matmul(scaled(query, since), state) + ops.matmul(seen, learned)
    return permute(output, 1, 0, 2), learned_state(state, key, learned, until)


def _inverse(below: Tensor) -> Tensor:
    """(I + A)^-1 for the part A (H, C, C) below the diagonal of a tensor.

    Of a matrix of four blocks, of which X and Z are the inverses of those on the diagonal, the
    block below it is -Z A X: the inverse of blocks twice as large follows from three products.
    """
    count = below.shape[1]
    row, column = np.indices((count, count))
    inverse = mask(np.eye(count), below)
    size = 1
    while size < count:
        is_left_below = (row // (2 * size) == column // (2 * size)) & (row // size > column // size)
        corner = below * mask(is_left_below, below)
        inverse = inverse - ops.matmul(ops.matmul(inverse, corner), inverse)
        size *= 2
    return inverse
