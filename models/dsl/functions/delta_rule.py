"""The gated delta rule (Yang et al., 2024, "Gated Delta Networks"): a matrix as memory, per head.

`T` are tokens, `H` heads, `G` groups of them, `K` the width of a key, `V` of a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.activations import sigmoid, softplus
from hearthd.models.dsl.functions.attention import split_heads
from hearthd.models.dsl.functions.norms import rms_norm
from hearthd.models.dsl.functions.shapes import along_axes, along_last, permute
from hearthd.models.dsl.functions.state_rings import (
    counted,
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


_EPS = 1e-6  # added to the sum of the squares of a key or a query


@composite()
def gated_delta_rule(
    states: Tensor,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor,
    rates: Tensor,
    *,
    groups: int,
    takes_turns: bool,
    ring: int,
    every: bool,
) -> Tensor:
    """A ring of states, updated by new tokens, and their outputs: see `recurrence_outputs`.

    states (ring + X, H * K * V): the state (H, K, V) after position p is row p mod `ring`; zeros
    before position 0. positions i32 (2,): of the first token, and of the last one that counts.
    query, key (T, G * K): head h reads group h // (H / G), or h mod G if it `takes_turns`.
    value (T, H * V), a and b (T, H), bias and rates, below 0, (H,). Token by token, with keys of
    length 1 and queries of length K^-0.5,

        decay = exp(softplus(a + bias) rates);  rate = sigmoid(b)
        S = decay S;  S = S + key (rate (value - S^T key))^T;  output = S^T query

    The state is written after each token if `every`, else after the last one that counts. Later
    tokens have a decay of 1 and a rate of 0, which changes nothing. The outputs (T, H * V) are at
    the start of the X rows. CHUNK tokens at a time are computed by products of matrices; the kernel
    computes token by token.
    """
    heads, width = bias.shape[0], key.shape[1] // groups
    log_decay = softplus(a + along_last(bias, a)) * along_last(rates, a)
    numbers = (log_decay, sigmoid(b))
    if not every:
        numbers = (counted(log_decay, positions), counted(sigmoid(b), positions))
    query, key = (
        _of_heads(_of_length(split_heads(x, width), length), heads, takes_turns=takes_turns)
        for x, length in ((query, width**-0.5), (key, 1.0))
    )
    value = split_heads(value, value.shape[1] // heads)
    shape = (heads, width, value.shape[2])
    rows = (query, key, value, *numbers)
    return recurrence(states, positions, rows, _chunk, shape=shape, ring=ring, every=every)


def _of_length(x: Tensor, length: float) -> Tensor:
    """x (T, G, K) / sqrt(sum(x^2) + 1e-6) * length."""
    width = x.shape[2]
    weight = ops.full(shape=(width,), dtype=x.dtype, value=length * width**-0.5)
    return rms_norm(x, weight, eps=_EPS / width)


def _of_heads(x: Tensor, heads: int, *, takes_turns: bool) -> Tensor:
    """Repeat rows of groups (T, G, K) for the heads that read them: (T, H, K)."""
    tokens, groups, width = x.shape
    times = heads // groups
    shape, axes = (tokens, groups, times, width), (0, 1, 3)
    if takes_turns:
        shape, axes = (tokens, times, groups, width), (0, 2, 3)
    return ops.reshape(ops.broadcast(x, shape=shape, axes=axes), shape=(tokens, heads, width))


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
    """(I + A)^-1, where A is the part of a tensor (H, C, C) below the diagonal.

    If X and Z are the inverses of two neighboring blocks on the diagonal, and B is the block of A
    below the diagonal, the inverse of all four has -Z B X there. So each round doubles the size of
    the inverted blocks.
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
