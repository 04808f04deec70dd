"""The recurrence of Mamba-2 (Dao and Gu, 2024, "Transformers are SSMs"): a matrix per head.

`T` is tokens, `C` tokens of a chunk, `H` heads, `G` groups of heads, `K` the width of a state, `V`
of a head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.activations import silu, softplus
from hearthd.models.dsl.functions.attention import split_heads
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

__all__ = ["ssm_scan"]


@composite()
def ssm_scan(
    states: Tensor,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    x: Tensor,
    steps: Tensor,
    gate: Tensor,
    bias: Tensor,
    rates: Tensor,
    skip: Tensor,
    *,
    groups: int,
    ring: int,
    every: bool,
) -> Tensor:
    """A ring of states, updated by new tokens, and their outputs: see `recurrence_outputs`.

    states (ring + X, H * K * V), positions and `every` as of `gated_delta_rule`. query and key, C
    and B in the paper, (T, G * K): head h reads group h // (H / G). x and gate (T, H * V),
    steps (T, H). bias, rates, A, below 0, and skip, D, (H,). Token by token

        dt = softplus(steps + bias)
        S = exp(dt rates) S + key (dt x)^T;  output = silu(gate) (S^T query + skip x)

    Tokens after the last one that counts have a dt of 0, which changes nothing. CHUNK tokens at a
    time are computed by products of matrices; the kernel computes token by token.
    """
    dt = softplus(steps + along_last(bias, steps))
    dt = dt if every else counted(dt, positions)
    heads = bias.shape[0]
    query, key = (split_heads(rows, rows.shape[1] // groups) for rows in (query, key))
    x, gate = (split_heads(rows, rows.shape[1] // heads) for rows in (x, gate))
    value = x * along_axes(dt, x, (2,))
    skipped = x * ops.broadcast(skip, shape=x.shape, axes=(1,))
    rows = (query, key, value, dt * along_last(rates, dt), skipped, silu(gate))
    shape = (heads, key.shape[2], x.shape[2])
    return recurrence(states, positions, rows, _chunk, shape=shape, ring=ring, every=every)


def _chunk(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    skipped: Tensor,
    gate: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """The outputs (C, H, V) of C tokens and the state (H, K, V) after them.

    With G the sums of log_decay up to each token and D_ij = exp(G_i - G_j) for j <= i, else 0:

        output = gate (exp(G) query S + ((query key^T) D) value + skipped)
        S = exp(G_C) S + (exp(G_C - G) key)^T value
    """
    heads = value.shape[1]
    query, key = (_of_heads(permute(x, 1, 0, 2), heads) for x in (query, key))
    value, until = permute(value, 1, 0, 2), sums_until(permute(log_decay, 1, 0))
    decay = decay_between(until)
    seen = times_transposed(query, key) * decay * mask(np.tri(decay.shape[1]), decay)
    before = ops.matmul(scaled(query, ops.exponential(until)), state)
    output = permute(before + ops.matmul(seen, value), 1, 0, 2)
    return gate * (output + skipped), learned_state(state, key, value, until)


def _of_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat rows of groups (G, C, K) for the heads that read them: (H, C, K)."""
    groups, tokens, width = x.shape
    shape = (groups, heads // groups, tokens, width)
    return ops.reshape(ops.broadcast(x, shape=shape, axes=(0, 2, 3)), shape=(heads, tokens, width))
